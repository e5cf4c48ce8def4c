"""Connection options, written once."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of ``plugins/module_utils/clients/connection.py``; playbooks give them by ``module_defaults``."""

    DOCUMENTATION = r"""
options:
  cluster_id:
    description: Id of the ACK cluster.
    type: str
  region_id:
    description: Region of the cluster, for example V(cn-hangzhou).
    type: str
  kubeconfig:
    description:
      - Path of the kubeconfig. Default is E(KUBECONFIG), else C(~/.kube/config).
    type: path
  context:
    description: Context of the kubeconfig. Default is its current context.
    type: str
  credentials_file:
    description:
      - Path of an Alibaba Cloud credentials file (INI profiles). Without O(credentials_file) and O(profile)
        the default chain of the SDK is used (environment, profile, RAM role, OIDC).
      - Keys never stand in the inventory itself.
    type: path
  profile:
    description: Profile in O(credentials_file). Default is V(default).
    type: str
  endpoints:
    description: URLs to use instead of the regional endpoints of Alibaba Cloud, for example in a VPC.
    type: dict
    suboptions:
      cs:
        description: Container Service.
        type: str
      ram:
        description: Resource Access Management.
        type: str
      ecs:
        description: Elastic Compute Service.
        type: str
      sts:
        description: Security Token Service.
        type: str
requirements:
  - kubernetes >= 37
  - msgspec >= 0.23
notes:
  - Set C(ansible_connection=local) and C(ansible_python_interpreter={{ ansible_playbook_python }}) in the inventory,
    so that the modules run in the environment that has these libraries.
"""

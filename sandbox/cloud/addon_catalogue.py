"""The add-ons that the sandbox's region offers: data. The cloud-native AI suite is not among them, as on ACK.

Source: the vendor's example gpu-sharing-with-cgpu (InstallClusterAddons answers AddonNotFound for ack-ai-installer).
Versions are oldest first; they are examples.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

_NO_SETTINGS = json.dumps({"$schema": "https://json-schema.org/draft-07/schema#", "type": "object", "properties": {}})
_REPLICAS = json.dumps({
    "$schema": "https://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"replicas": {"type": "integer", "default": 2}},
})  # fmt: skip


@dataclass(frozen=True)
class Addon:
    category: str
    versions: tuple[str, ...]
    installed: str = ""
    managed: bool = False
    by_default: bool = False
    config_schema: str = _NO_SETTINGS
    minimum_cluster_version: str = "1.26"


CATALOGUE: dict[str, Addon] = {
    "coredns": Addon(
        "network", ("v1.11.3.5-5321daf49-aliyun", "v1.12.1.3-b4ffbf3f3-aliyun"), "v1.11.3.5-5321daf49-aliyun",
        by_default=True, config_schema=_REPLICAS,
    ),
    "metrics-server": Addon(
        "monitor", ("v0.3.9.7-4e6b6bd-aliyun", "v0.3.9.17-d3ae7b0-aliyun"), "v0.3.9.17-d3ae7b0-aliyun", by_default=True,
    ),
    "csi-plugin": Addon("storage", ("v1.32.4", "v1.33.1"), "v1.33.1", by_default=True),
    "csi-provisioner": Addon("storage", ("v1.32.4", "v1.33.1"), "v1.33.1", by_default=True),
    "terway-eniip": Addon("network", ("v1.14.2", "v1.15.4"), "v1.15.4", by_default=True),
    "kube-scheduler": Addon("others", ("6.8.5", "6.9.4"), "6.9.4", managed=True, by_default=True),
    "cloud-controller-manager": Addon("others", ("v2.11.2", "v2.12.4"), "v2.12.4", managed=True, by_default=True),
    "ack-node-problem-detector": Addon("logging", ("1.2.25", "1.2.29"), "1.2.29", by_default=True),
    "logtail-ds": Addon("logging", ("v1.8.7.0-aliyun", "v1.8.8.0-aliyun"), "v1.8.7.0-aliyun"),
    "arms-prometheus": Addon("monitor", ("1.1.30", "1.1.33")),
    "nginx-ingress-controller": Addon("network", ("v1.11.5-aliyun.1", "v1.12.6-aliyun.1"), config_schema=_REPLICAS),
    "ack-node-local-dns": Addon("network", ("1.5.15", "1.6.0")),
}  # fmt: skip

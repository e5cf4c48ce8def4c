"""The processes of a sandbox and their flags: one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.certificates import Authority, signing_key
from sandbox.layout import Layout

SOURCES = Path(__file__).resolve().parent
# The service network that the ACK console proposes; its first address is the Service `kubernetes`.
SERVICE_NETWORK, FIRST_SERVICE = "172.21.0.0/20", "172.21.0.1"
# Who the clients are: own names, so that the audit log tells the machinery from the product.
CLIENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("sandbox:kwok", ("system:masters",)),
    "machines": ("sandbox:machines", ("system:masters",)),
    "cloud": ("sandbox:cloud", ("system:masters",)),
}


@dataclass
class Context:
    """What the flags are made of. Ports are chosen when a process starts, so earlier processes' ports are known."""

    layout: Layout
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    def kubeconfig(self, process: str) -> str:
        return str(self.layout.pki / f"{process}.kubeconfig")


@dataclass(frozen=True)
class Process:
    """One row: how a process starts, which ports it opens, and when it counts as ready.

    ``health`` is a path asked over https on the process's first port; None: the process writes its ready file.
    """

    name: str
    flags: Callable[[Context], list[str]]
    ports: tuple[str, ...] = ()
    health: str | None = None

    @property
    def is_ours(self) -> bool:
        """True for a process of this package, which wants to end in order; the others' state is thrown away."""
        return self.health is None

    def command(self, context: Context) -> list[str]:
        if self.is_ours:
            return [sys.executable, "-m", f"sandbox.{self.name}", *self.flags(context)]
        return [str(context.layout.bin / self.name), *self.flags(context)]


def _etcd(context: Context) -> list[str]:
    pki = context.layout.pki
    clients, peers = (f"https://127.0.0.1:{context.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        f"--data-dir={context.layout.root / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--client-cert-auth",
        f"--cert-file={pki / 'serving.crt'}",
        f"--key-file={pki / 'serving.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--peer-client-cert-auth",
        f"--peer-cert-file={pki / 'serving.crt'}",
        f"--peer-key-file={pki / 'serving.key'}",
        f"--peer-trusted-ca-file={pki / 'ca.crt'}",
        # The data is thrown away with the sandbox: nothing needs to survive a power failure.
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
    ]


def _apiserver(context: Context) -> list[str]:
    layout, pki = context.layout, context.layout.pki
    return [
        f"--etcd-servers=https://127.0.0.1:{context.ports['etcd']}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'apiserver-client.crt'}",
        f"--etcd-keyfile={pki / 'apiserver-client.key'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={context.ports['kube-apiserver']}",
        # Loopback can't be an endpoint of the Service `kubernetes`, and nobody here goes through it.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki / 'serving.crt'}",
        f"--tls-private-key-file={pki / 'serving.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-client.key'}",
        # A node's InternalIP is pretended; its kubelet's port is on the ExternalIP 127.0.0.1.
        "--kubelet-preferred-address-types=ExternalIP,InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--allow-privileged=true",
        f"--audit-policy-file={SOURCES / 'audit-policy.yaml'}",
        f"--audit-log-path={layout.audit_log}",
        # One file for the sandbox's whole life: a reader must not miss what was rotated away. In MB.
        "--audit-log-maxsize=1000000",
    ]


def _controller_manager(context: Context) -> list[str]:
    pki = context.layout.pki
    return [
        f"--kubeconfig={context.kubeconfig('kube-controller-manager')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={context.ports['kube-controller-manager']}",
        f"--tls-cert-file={pki / 'serving.crt'}",
        f"--tls-private-key-file={pki / 'serving.key'}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        # What ACK's cloud controller manager does is done by the process `cloud`.
        "--controllers=*,-nodeipam,-route,-service-lb-controller,-cloud-node-lifecycle-controller",
        # Nodes renew no leases here (see kwok.yaml): a machine that goes away says so itself.
        "--node-monitor-grace-period=24h",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def _scheduler(context: Context) -> list[str]:
    pki = context.layout.pki
    return [
        f"--kubeconfig={context.kubeconfig('kube-scheduler')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={context.ports['kube-scheduler']}",
        f"--tls-cert-file={pki / 'serving.crt'}",
        f"--tls-private-key-file={pki / 'serving.key'}",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def _kwok(context: Context) -> list[str]:
    pki, port = context.layout.pki, context.ports["kwok"]
    return [
        f"--kubeconfig={context.kubeconfig('kwok')}",
        f"--config={SOURCES / 'kwok.yaml'}",
        f"--server-address=127.0.0.1:{port}",
        f"--node-port={port}",
        f"--tls-cert-file={pki / 'serving.crt'}",
        f"--tls-private-key-file={pki / 'serving.key'}",
    ]


def _kubelet(context: Context) -> list[str]:
    pki = context.layout.pki
    return [
        f"--address=127.0.0.1:{context.ports['kubelet']}",
        f"--state={context.layout.root}",
        f"--tls-cert-file={pki / 'serving.crt'}",
        f"--tls-private-key-file={pki / 'serving.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
    ]


def _machines(context: Context) -> list[str]:
    return [*_ours(context), "--kubelet-port", str(context.ports["kubelet"])]


def _ours(context: Context) -> list[str]:
    return ["--state", str(context.layout.root)]


# In the order of their start: what a process is told of another's port has to be known by then.
STORE = (Process("etcd", _etcd, ("etcd", "etcd-peer"), "/health"),)
SERVERS = (
    Process("kube-apiserver", _apiserver, ("kube-apiserver",), "/readyz"),
    Process("kubelet", _kubelet, ("kubelet",), "/healthz"),
)
CLIENTS_OF_THE_API = (
    Process("kube-controller-manager", _controller_manager, ("kube-controller-manager",), "/healthz"),
    Process("kube-scheduler", _scheduler, ("kube-scheduler",), "/healthz"),
    Process("kwok", _kwok, ("kwok",), "/healthz"),
    Process("machines", _machines),
    Process("cloud", _ours),
)
PROCESSES = (*STORE, *SERVERS, *CLIENTS_OF_THE_API)


def make_certificates(context: Context) -> Authority:
    """The keys and certificates that the first two processes start with."""
    authority = Authority(context.layout.pki)
    names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", FIRST_SERVICE]
    authority.serving("serving", names)
    authority.client("apiserver-client", "kube-apiserver", ("system:masters",))
    signing_key(context.layout.pki, "service-accounts")
    return authority


def make_kubeconfigs(context: Context, authority: Authority) -> None:
    """The administrator's kubeconfig, and one for each process that talks to the API."""
    authority.kubeconfig(context.layout.kubeconfig, context.server, "admin", ("system:masters",))
    for process, (user, groups) in CLIENTS.items():
        authority.kubeconfig(Path(context.kubeconfig(process)), context.server, user, groups)

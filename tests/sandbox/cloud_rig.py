"""An endpoint of a test's own, called with the real SDK; its machines are pretended, so no cluster is needed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from alibabacloud_tea_openapi.client import Client
from alibabacloud_tea_openapi.utils_models import Config, OpenApiRequest, Params
from darabonba.runtime import RuntimeOptions

from sandbox import pools
from sandbox.certificates import Authority
from sandbox.cloud import faults, pool_work, seed
from sandbox.cloud.endpoint import Endpoint
from sandbox.cloud.operations import registry
from sandbox.cloud.registry import VERSIONS
from sandbox.cloud.server import Server
from sandbox.cloud.store import Store
from sandbox.cloud.tasks import Engine
from sandbox.cloud.world import Settings, World
from sandbox.machines.objects import Machine, node_object

POOLS = pools.load()
CLUSTER = POOLS.cluster["cluster_id"]
REGION = POOLS.cluster["region_id"]
ROLE = POOLS.cluster["worker_ram_role_name"]
PATHS = {each.action: each for each in registry().operations}
PATIENCE_SECONDS = 10.0
SECRET = "tester-secret"


class PretendedFleet:
    """Nodes in a dictionary. New ones are Ready at once unless `ready` is off; `stubborn` pods refuse eviction."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.ready = True
        self.bound: dict[str, list[dict[str, Any]]] = {}
        self.stubborn: set[str] = set()
        self.reboots: list[tuple[str, str, bool]] = []
        self.commands: list[tuple[str, list[str]]] = []
        self.answer: Callable[[list[str], float], CompletedProcess[bytes]] = lambda argv, timeout: CompletedProcess(
            argv, 0, b"done\n", b""
        )
        self._version = 0

    def nodes(self) -> dict[str, dict[str, Any]]:
        return json.loads(json.dumps(self.objects))

    def create(self, machine: Machine) -> None:
        if machine.name not in self.objects:
            self.objects[machine.name] = {**node_object(machine)}
            self.set_ready(machine.name, self.ready)

    def delete(self, node: str) -> None:
        self.objects.pop(node, None)

    def patch(self, node: str, patch: Mapping[str, Any]) -> None:
        if node in self.objects:
            self.objects[node] = _merge(self.objects[node], patch)
            self._touch(node)

    def pods(self, node: str) -> list[dict[str, Any]]:
        return self.bound.get(node, [])

    def evict(self, namespace: str, pod: str) -> bool:
        if pod in self.stubborn:
            return False
        for node, found in self.bound.items():
            self.bound[node] = [each for each in found if each["metadata"]["name"] != pod]
        return True

    def reboot(self, node: str, source: str, *, force: bool) -> None:
        if node not in self.objects:
            raise FileNotFoundError(node)
        self.reboots.append((node, source, force))

    def shell(self, node: str, argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        self.commands.append((node, argv))
        return self.answer(argv, timeout)

    def kubernetes_version(self) -> str:
        return "1.36.1"

    def set_ready(self, node: str, ready: bool) -> None:
        for condition in self.objects[node]["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "True" if ready else "False"
        self._touch(node)

    def _touch(self, node: str) -> None:
        self._version += 1
        self.objects[node]["metadata"]["resourceVersion"] = str(self._version)


class Caller:
    """Calls an endpoint with the real SDK, by action and raw fields."""

    def __init__(self, host: str, key_id: str, secret: str) -> None:
        self.host, self.key_id, self.secret = host, key_id, secret

    def client(self, key_id: str = "", secret: str = "", token: str = "", **more: Any) -> Client:
        return Client(
            Config(
                access_key_id=key_id or self.key_id,
                access_key_secret=secret or self.secret,
                security_token=token or None,
                type="sts" if token else None,
                endpoint=self.host,
                protocol="http",
                connect_timeout=5000,
                read_timeout=20000,
                **more,
            )
        )

    def call(
        self, action: str, *, client: Client | None = None, body: Any = None, query: Mapping[str, Any] | None = None,
        **path: str,
    ) -> Any:  # fmt: skip
        """Any call by its action, as the SDK's generic client sends it; returns the decoded body."""
        operation = PATHS[action]
        pathname = operation.path.format(**{"cluster_id": CLUSTER, **path})
        params = Params(
            action=action, version=VERSIONS[operation.product], protocol="http", pathname=pathname,
            method=operation.method, auth_type="AK", style="ROA" if operation.roa else "RPC",
            req_body_type="json" if operation.roa else "formData", body_type="string",
        )  # fmt: skip
        text = {key: _text(each) for key, each in (query or {}).items()}
        answer = (client or self.client()).call_api(params, OpenApiRequest(body=body, query=text), RuntimeOptions())
        return json.loads(answer["body"]) if answer["body"] else None

    def rpc(self, action: str, client: Client | None = None, **query: Any) -> Any:
        return self.call(action, client=client, query=query)

    def task(self, task_id: str) -> dict[str, Any]:
        return dict(self.call("DescribeTaskInfo", task_id=task_id))

    def finished(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until the task of an answer has ended; returns it."""
        return wait_for(lambda: self.task(answer["task_id"]), lambda task: task["state"] in ("success", "fail"))

    def finished_answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer itself, after its task has succeeded."""
        task = self.finished(answer)
        assert task["state"] == "success", task
        return answer

    def pool_id(self, name: str) -> str:
        return str(POOLS.pool(name)["nodepool_info"]["nodepool_id"])

    def pool(self, pool_id: str) -> dict[str, Any]:
        return dict(self.call("DescribeClusterNodePoolDetail", nodepool_id=pool_id))

    def nodes(self, pool_id: str) -> list[dict[str, Any]]:
        answer = self.call("DescribeClusterNodes", query={"nodepool_id": pool_id, "pageSize": "100"})
        return list(answer["nodes"])


class Rig(Caller):
    """An endpoint in this process, with pretended machines."""

    def __init__(self, state: Path, **times: float) -> None:
        super().__init__("", "LTAItester", SECRET)
        self.state, self.times = state, times
        self.fleet = PretendedFleet()
        self.offset = timedelta(0)
        for folder in ("cloud", "pki"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        Authority(state / "pki").kubeconfig(state / "kubeconfig", "https://127.0.0.1:1", "admin", ["system:masters"])
        self.keys = {"LTAItester": {"secret": SECRET, "user": "tester"}}
        self.write_keys()
        self._start()
        with self.world.store.change() as data:
            for instance in data["instances"].values():
                if instance["pool_id"]:
                    self.fleet.create(Machine(**instance["machine"]))

    def _start(self) -> None:
        given = {"task_seconds": 0.05, "tick_seconds": 0.01, "replace_failed_seconds": 0.2, **self.times}
        store = Store(self.state / "cloud" / "state.json", lambda: seed.records(POOLS, datetime.now(UTC)))
        self.world = World(store, self.fleet, Settings(self.state, **given), now=self._now)
        self.server = Server(Endpoint(self.world, registry()))
        self.server.start()
        self.host = f"127.0.0.1:{self.server.port}"
        self.engine = Engine(self.world, pool_work.replace_failed)
        self.engine.start()

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def stop(self) -> None:
        self.engine.stop()
        self.server.shutdown()
        self.server.server_close()

    def restart(self) -> None:
        """Another process would do the same: only the state folder is kept."""
        self.stop()
        self._start()

    def write_keys(self) -> None:
        (self.state / "cloud" / "access_keys.json").write_text(json.dumps(self.keys))

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / "cloud" / "requests.jsonl").read_text().splitlines()]

    def fault(self, kind: str, action: str = faults.ANY, **more: Any) -> None:
        faults.add(self.state, faults.Fault(kind, action, **more))


@contextmanager
def running(state: Path, **times: float) -> Iterator[Rig]:
    rig = Rig(state, **times)
    try:
        yield rig
    finally:
        rig.stop()
        assert not [thread for thread in threading.enumerate() if thread.name == "cloud-tasks" and thread.is_alive()]


def wait_for(look: Callable[[], Any], enough: Callable[[Any], bool] = bool, seconds: float = PATIENCE_SECONDS) -> Any:
    """What `look` sees as soon as it is enough; an error that tells the last sight when it never is."""
    until = time.monotonic() + seconds
    while True:
        seen = look()
        if enough(seen):
            return seen
        assert time.monotonic() < until, f"still {seen!r} after {seconds} s"
        time.sleep(0.01)


def pool_body(name: str, **scaling: Any) -> dict[str, Any]:
    """The least that CreateClusterNodePool takes."""
    return {
        "nodepool_info": {"name": name},
        "scaling_group": {
            "instance_types": ["ecs.gn6i-c4g1.xlarge"],
            "vswitch_ids": ["vsw-1"],
            "instance_charge_type": "PostPaid",
            **scaling,
        },
    }


def policy_text(*actions: str) -> str:
    return json.dumps({"Version": "1", "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]})


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result

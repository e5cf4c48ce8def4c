"""The whole job, as an operator runs it: checked, killed, run again, upgraded, and run once more without a write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import books
from tests.kill_once import kill_while_helm_works, release_state
from tests.support import Sandbox, fresh_sandbox

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
POLICY = "k8sWorkerRolePolicy-"


class Operator:
    """Somebody with an identity of their own, so that what they wrote can be told apart."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self.sandbox, self.name = sandbox, name
        self.connection = {
            "cluster_id": sandbox.cluster_id,
            "region_id": sandbox.region_id,
            "kubeconfig": str(sandbox.user(name)),
            "credentials_file": str(sandbox.credentials_file),
            "profile": name,
            "endpoints": sandbox.endpoints,
        }

    def command(self, playbook: str, *arguments: str, **variables: Any) -> list[str]:
        extra = f"--extra-vars={json.dumps({'ack_connection': self.connection, **variables})}"
        run = [str(BIN / "ansible-playbook"), "--inventory=inventories/sandbox", f"playbooks/{playbook}.yml"]
        return [*run, extra, *arguments]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ACK_SANDBOX": self.sandbox.name,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(ROOT / ".ansible"),
        }

    def play(self, playbook: str, *arguments: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(playbook, *arguments, **variables), cwd=ROOT, env=self.environment(),
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip

    def writes(self) -> list[str]:
        found = books.kubernetes_writes(self.sandbox.audit_log, self.name)
        found += books.cloud_writes(self.sandbox.request_log, self.name)
        return [books.shown(entry) for entry in found]


def changed(done: subprocess.CompletedProcess[str]) -> int:
    found = re.search(r"changed=(\d+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return int(found[1])


@pytest.fixture(scope="module")
def site() -> Iterator[Sandbox]:
    with fresh_sandbox("site", workload=True) as sandbox:
        yield sandbox


def helm_state(sandbox: Sandbox) -> str:
    return release_state(sandbox.info)


def test_1_check_and_diff_on_an_untouched_sandbox_show_the_job_and_write_nothing(site: Sandbox) -> None:
    operator = Operator(site, "checker")
    done = operator.play("site", "--check", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert changed(done) >= 3
    assert operator.writes() == []
    assert POLICY + str(site.cluster_id) in done.stdout
    assert "DaemonSet" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_2_a_site_run_that_was_killed_while_helm_installed_is_finished_by_the_next(site: Sandbox) -> None:
    operator = Operator(site, "killed")
    kill_while_helm_works(operator.command("site"), operator.environment(), site.info)
    assert helm_state(site).startswith("pending")

    successor = Operator(site, "successor")
    done = successor.play("site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert helm_state(site) == "deployed"


def test_3_kubectl_helm_and_the_endpoint_confirm_the_result(site: Sandbox) -> None:
    assert helm_state(site) == "deployed"
    sets = json.loads(site.run("kubectl", "get", "daemonsets", "--namespace=kube-system", "--output=json"))["items"]
    by_name = {item["metadata"]["name"]: item["spec"] for item in sets}
    assert {"cgpu-installer", "cgpu-core-installer", "gpushare-device-plugin-ds"} <= set(by_name)
    for name in ("cgpu-installer", "cgpu-core-installer"):
        assert by_name[name]["updateStrategy"]["type"] == "OnDelete"
        environment = by_name[name]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "POLICY", "value": "5"} in environment
    assert {spec["template"]["spec"]["priorityClassName"] for spec in by_name.values()} == {"system-node-critical"}
    pool = site.run("kubectl", "get", "nodes", "--selector=ack.node.gpu.schedule=cgpu", "--output=name").split()
    assert len(pool) > 2  # the sandbox was born with two


def test_4_a_second_site_run_changes_nothing_and_sends_no_write_to_either_api(site: Sandbox) -> None:
    operator = Operator(site, "second")
    done = operator.play("site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert changed(done) == 0
    assert operator.writes() == []


def test_5_an_upgrade_leaves_each_node_schedulable_with_the_new_version_and_nothing_of_ours(site: Sandbox) -> None:
    done = Operator(site, "upgrader").play("node_upgrade")
    assert done.returncode == 0, done.stdout + done.stderr
    shared = site.run("kubectl", "get", "nodes", "--selector=ack.node.gpu.schedule=cgpu", "--output=json")
    for node in json.loads(shared)["items"]:
        assert not node["spec"].get("unschedulable"), node["metadata"]["name"]
        assert "ai-suite.ack/" not in json.dumps(node["metadata"]), node["metadata"]["name"]
        version = (site.nodes_root / node["metadata"]["name"] / "root/proc/cgpu_km/version").read_text().strip()
        assert version == "1.5.20"


def test_6_a_second_upgrade_run_changes_nothing_and_sends_no_write(site: Sandbox) -> None:
    operator = Operator(site, "again")
    done = operator.play("node_upgrade")
    assert done.returncode == 0, done.stdout + done.stderr
    assert changed(done) == 0
    assert operator.writes() == []


WINDOW = {"start": "01:00", "duration": "4h", "days": ["mon"], "timezone": "Asia/Shanghai"}


@pytest.mark.parametrize(
    ("playbook", "variables", "said"),
    [
        ("node_upgrade", {"node_upgrade_windows": [{**WINDOW, "timezone": None}]}, "UPG-WINDOW-ZONE"),
        ("component", {"component_components": [{"name": "ack-ai-installer", "version": 1.12}]}, "version"),
        ("component", {"component_components": [{"name": "ack-ai-installer", "policy": 9}]}, "policy"),
    ],
    ids=["a window without a zone", "an unquoted version", "a policy of 9"],
)
def test_wrong_input_is_one_clear_error_before_anything_is_changed(
    site: Sandbox, playbook: str, variables: dict[str, Any], said: str, request: pytest.FixtureRequest
) -> None:
    operator = Operator(site, re.sub(r"\W+", "-", request.node.callspec.id).strip("-"))
    done = operator.play(playbook, **variables)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert said in output
    assert "Traceback" not in output
    assert operator.writes() == []


def test_a_missing_kubeconfig_is_one_clear_error(site: Sandbox) -> None:
    operator = Operator(site, "lost")
    operator.connection["kubeconfig"] = "/nowhere/kubeconfig"
    done = operator.play("site")
    assert done.returncode != 0
    assert "KUB-CONFIG" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_api_that_refuses_is_one_clear_error_with_its_own_words(site: Sandbox) -> None:
    operator = Operator(site, "outsider")
    operator.connection["kubeconfig"] = str(site.user("nobody", "nobody"))
    done = operator.play("site")
    assert done.returncode != 0
    assert "KUB-403" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert operator.writes() == []

"""The stand-in chart: what it makes, what it refuses, and what a real API server says to it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ansible_collections.ack.ai_suite.plugins.module_utils.core.values import merged
from tests.support import Sandbox

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "ack-ai-installer"
SANDBOX = ROOT / "inventories/sandbox/group_vars/all/component.yml"
VALUES: dict[str, Any] = yaml.safe_load(SANDBOX.read_text())["component_components"][0]["values"]

# Names and selectors: facts of `kubectl get ds` on real clusters.
SELECTED = {
    "cgpu-installer": "cgpu",
    "cgpu-core-installer": "core_mem",
    "gputopo-device-plugin-ds": "topology",
    "nvidia-device-plugin-recover": "default",
}
AFFINE = {
    "gpushare-device-plugin-ds": ["cgpu", "share"],
    "gpushare-core-device-plugin-ds": ["core_mem"],
    "gpushare-mps-device-plugin-ds": ["mps"],
    "migparted-device-plugin": ["mig"],
}
INSTALLERS = ["cgpu-installer", "cgpu-core-installer"]
Template = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def template(sandbox: Sandbox) -> Template:
    """``helm template`` with values on standard input, ended well or not."""

    def run(
        values: Mapping[str, Any] = VALUES, *arguments: str, chart: Path = CHART
    ) -> subprocess.CompletedProcess[str]:
        command = [str(sandbox.bin / "helm"), "template", "ack-ai-installer", str(chart), "--namespace=kube-system"]
        return subprocess.run([*command, "--values=-", *arguments], input=json.dumps(values),
                              capture_output=True, text=True, check=False)  # fmt: skip

    return run


@pytest.fixture(scope="module")
def objects(template: Template) -> list[dict[str, Any]]:
    done = template()
    assert done.returncode == 0, done.stderr
    return [thing for thing in yaml.safe_load_all(done.stdout) if thing]


@pytest.fixture(scope="module")
def sets(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {thing["metadata"]["name"]: thing["spec"] for thing in objects if thing["kind"] == "DaemonSet"}


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return dict(spec["template"]["spec"])


# --- what it makes ---


def test_it_makes_the_daemonsets_of_a_real_cluster(sets: dict[str, dict[str, Any]]) -> None:
    assert set(sets) == set(SELECTED) | set(AFFINE)


@pytest.mark.parametrize("name", SELECTED)
def test_a_daemonset_selects_the_nodes_of_its_mode(sets: dict[str, dict[str, Any]], name: str) -> None:
    assert pod(sets[name])["nodeSelector"] == {"ack.node.gpu.schedule": SELECTED[name]}


@pytest.mark.parametrize("name", AFFINE)
def test_a_plug_in_without_a_selector_has_an_affinity(sets: dict[str, dict[str, Any]], name: str) -> None:
    assert "nodeSelector" not in pod(sets[name])
    terms = pod(sets[name])["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "ack.node.gpu.schedule", "operator": "In", "values": AFFINE[name]}]}
    ]


def test_every_pod_is_known_by_its_daemonsets_name_and_by_nothing_that_changes(sets: dict[str, dict[str, Any]]) -> None:
    for name, spec in sets.items():
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {"name": name}


def test_no_pod_can_be_preempted_and_all_stay_on_a_node_in_quarantine(sets: dict[str, dict[str, Any]]) -> None:
    for spec in sets.values():
        assert pod(spec)["priorityClassName"] == "system-node-critical"
        assert pod(spec)["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("name", INSTALLERS)
def test_an_installer_reaches_the_host_and_is_never_replaced_by_itself(
    sets: dict[str, dict[str, Any]], name: str
) -> None:
    assert sets[name]["updateStrategy"] == {"type": "OnDelete"}
    assert pod(sets[name])["hostPID"] is True
    container = pod(sets[name])["containers"][0]
    assert container["securityContext"] == {"privileged": True}
    assert container["image"] == "registry.example.test/acs/cgpu-installer:1.5.20"
    assert {"name": "POLICY", "value": "5"} in container["env"]
    assert pod(sets[name])["automountServiceAccountToken"] is False


def test_plug_ins_have_no_privileges(sets: dict[str, dict[str, Any]]) -> None:
    for name, spec in sets.items():
        if name not in INSTALLERS:
            context = pod(spec)["containers"][0]["securityContext"]
            assert "privileged" not in context
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False


def test_every_object_has_the_recommended_labels_and_every_container_its_resources(
    objects: list[dict[str, Any]],
) -> None:
    for thing in objects:
        labels = thing["metadata"]["labels"]
        for label in ("name", "instance", "version", "managed-by", "part-of"):
            assert labels[f"app.kubernetes.io/{label}"]
        if thing["kind"] == "DaemonSet":
            assert set(pod(thing["spec"])["containers"][0]["resources"]) == {"requests", "limits"}


@pytest.mark.parametrize("policy", range(6))
def test_each_policy_reaches_both_installers_as_a_string(template: Template, policy: int) -> None:
    text = template({**VALUES, "policy": policy}).stdout
    assert text.count(f'name: POLICY\n              value: "{policy}"') == 2


@pytest.mark.parametrize(
    ("part", "names"),
    [("cgpu", INSTALLERS), ("gpushare", [name for name in AFFINE if name.startswith("gpushare")]),
     ("gputopo", ["gputopo-device-plugin-ds"]), ("migparted", ["migparted-device-plugin"]),
     ("recover", ["nvidia-device-plugin-recover"])],
)  # fmt: skip
def test_a_part_that_is_not_enabled_makes_nothing_and_needs_no_image(
    template: Template, part: str, names: list[str]
) -> None:
    done = template({**VALUES, part: {"enabled": False}})
    assert done.returncode == 0, done.stderr
    made = {thing["metadata"]["name"] for thing in yaml.safe_load_all(done.stdout) if thing["kind"] == "DaemonSet"}
    assert made == (set(SELECTED) | set(AFFINE)) - set(names)


def test_an_image_can_be_pinned_by_its_digest(template: Template) -> None:
    digest = "sha256:" + "0" * 64
    values = merged(VALUES, {"cgpu": {"image": {"digest": digest}}})
    assert f"image: registry.example.test/acs/cgpu-installer:1.5.20@{digest}\n" in template(values).stdout


def test_a_new_chart_version_alone_changes_no_pod(template: Template, sets: dict[str, Any], tmp_path: Path) -> None:
    newer = tmp_path / "ack-ai-installer"
    for source in CHART.rglob("*"):
        if source.is_file():
            target = newer / source.relative_to(CHART)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.read_text().replace("version: 0.1.0", "version: 9.9.9"))
    text = template(chart=newer).stdout
    assert "ack-ai-installer-9.9.9" in text
    after = {t["metadata"]["name"]: t["spec"] for t in yaml.safe_load_all(text) if t["kind"] == "DaemonSet"}
    assert after == sets


# --- what it refuses ---


def without(*path: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(VALUES))
    held = values
    for step in path[:-1]:
        held = held[step]
    del held[path[-1]]
    return values


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (without("registry"), "missing property 'registry'"),
        (without("cgpu", "image"), "'/cgpu': missing property 'image'"),
        (without("cgpu", "image", "tag"), "missing property 'tag'"),
        (without("gpushare", "image", "repository"), "missing property 'repository'"),
        ({**VALUES, "registry": ""}, "'/registry'"),
        ({**VALUES, "registry": None}, "'/registry': got null, want string"),
        ({**VALUES, "policy": 6}, "'/policy': maximum: got 6, want 5"),
        ({**VALUES, "policy": -1}, "'/policy': minimum"),
        ({**VALUES, "policy": 2.5}, "'/policy'"),
        ({**VALUES, "policy": "5"}, "'/policy': got string, want integer"),
        ({**VALUES, "pilocy": 5}, "'pilocy' not allowed"),
        (merged(VALUES, {"cgpu": {"image": {"tag": 1.2}}}), "'/cgpu/image/tag': got number, want string"),
        (merged(VALUES, {"cgpu": {"image": {"tag": "1.5.20 "}}}), "'/cgpu/image/tag'"),
        (merged(VALUES, {"cgpu": {"image": {"digest": "sha256:00"}}}), "'/cgpu/image/digest'"),
        (merged(VALUES, {"cgpu": {"updateStrategy": "RollingUpdate"}}), "'updateStrategy' not allowed"),
        (merged(VALUES, {"gpushare": {"memoryUnit": "GB"}}), "'/gpushare/memoryUnit'"),
        (merged(VALUES, {"gpushare": {"priorityClassName": "low"}}), "'priorityClassName' not allowed"),
        (merged(VALUES, {"resources": {"limits": {"gpu": 1}}}), "'gpu' not allowed"),
        (merged(VALUES, {"resources": {"limits": {"cpu": "much"}}}), "'/resources/limits/cpu'"),
        ({**VALUES, "tolerations": [{"operator": "Always"}]}, "'/tolerations/0/operator'"),
        ({**VALUES, "imagePullSecrets": ["name"]}, "'/imagePullSecrets/0': got string, want object"),
        ({**VALUES, "imagePullPolicy": "Sometimes"}, "'/imagePullPolicy'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_with_its_place(template: Template, values: dict[str, Any], said: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("version", ["v1.18.8", "v1.18.8-aliyun.1", "v1.20.4-aliyun.1", "v1.34.3-aliyun.1", "v1.36.1"])
def test_servers_from_1_18_8_on_are_admitted_with_the_vendors_tail(template: Template, version: str) -> None:
    done = template(VALUES, f"--kube-version={version}")
    assert done.returncode == 0, done.stderr


def test_an_older_server_is_refused(template: Template) -> None:
    assert "incompatible with Kubernetes" in template(VALUES, "--kube-version=v1.18.7").stderr


# --- its files ---


def test_no_image_and_no_registry_has_a_default() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert "registry" not in defaults
    assert not [name for name, part in defaults.items() if isinstance(part, dict) and "image" in part]


def schemas(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if part.get("type") == "object":
            yield part
        for below in part.values():
            yield from schemas(below)


def test_the_schema_is_closed_and_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    found = list(schemas(schema))
    assert len(found) > 8
    for part in found:
        assert part["additionalProperties"] is False
        for name, value in part["properties"].items():
            assert "$ref" in value or value.get("description"), name


def test_every_default_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) <= set(schema["properties"])


# --- what others say to it ---


def test_helm_lint_finds_nothing_to_complain_about(sandbox: Sandbox) -> None:
    command = [str(sandbox.bin / "helm"), "lint", "--strict", str(CHART), "--values=-"]
    done = subprocess.run(command, input=json.dumps(VALUES), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_api_server_accepts_every_object(template: Template, kubectl: Callable[..., str]) -> None:
    told = kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=template().stdout)
    assert told.count("(server dry run)") == 12


@pytest.mark.parametrize("minor", ["1.25", "1.30", "1.36"])
def test_the_objects_are_valid_on_other_minors(objects: list[dict[str, Any]], minor: str) -> None:
    for thing in objects:
        kubernetes_validate.validate(thing, minor, strict=True)


def test_values_from_a_file_and_from_set_give_the_same_manifest(template: Template, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    from_file = template({}, f"--values={file}").stdout
    pairs = [f"{part}.image.{key}={value}" for part, held in VALUES.items() if isinstance(held, dict)
             for key, value in held["image"].items()]  # fmt: skip
    from_set = template({}, f"--set=registry={VALUES['registry']}", *(f"--set-string={pair}" for pair in pairs)).stdout
    assert from_file == from_set == template().stdout

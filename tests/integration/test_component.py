"""Components on a real control plane: installed, upgraded, put right, removed; kubectl and helm confirm it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.values import merged
from ansible_collections.ack.ai_suite.plugins.modules import component_info
from tests import component_rig
from tests.component_rig import CHART, NAME, NODES, VALUES, Rig, chart, image


@pytest.fixture(scope="module")
def cluster() -> Iterator[Rig]:
    with component_rig.rig() as made:
        yield made


@pytest.fixture
def rig(cluster: Rig) -> Iterator[Rig]:
    """A cluster without the component, before and after."""
    cluster.clear()
    yield cluster
    cluster.clear()


@pytest.fixture
def installed(rig: Rig) -> Rig:
    rig.run()
    return rig


def refusal(rig: Rig, **given: Any) -> AckError:
    """The error of a run that must write nothing."""
    with pytest.raises(AckError) as refused:
        rig.run(**given)
    assert rig.writes() == []
    return refused.value


# --- installed, and left alone ---


def test_check_mode_shows_the_objects_as_the_api_would_make_them_and_writes_nothing(rig: Rig) -> None:
    result = rig.run(check_mode=True)
    assert result["plan"] == [f"install component {NAME} 0.1.0"]
    after = result["diff"][0]["after"]
    assert len(after) == 12
    made = after["DaemonSet kube-system/cgpu-installer"]["spec"]["template"]["spec"]
    assert made["dnsPolicy"] == "ClusterFirst"  # a default of the API: it has judged the object
    assert rig.writes() == []
    assert rig.status() == ""


def test_a_first_install_is_deployed_with_policy_5_and_a_second_run_writes_nothing(rig: Rig) -> None:
    result = rig.run()
    assert result["changed"]
    assert result["components"] == [
        {"component": NAME, "state": "present", "version": "0.1.0", "policy": 5, "nodes_behind": []}
    ]
    assert rig.history() == [(1, "deployed")]
    assert rig.policies() == {"5"}
    assert rig.get("daemonset", "cgpu-installer")["status"]["numberReady"] == len(NODES)
    assert "ai-suite" not in rig.kubectl("get", "leases", "--output=name")

    result = rig.run()
    assert (result["changed"], result["plan"], "diff" in result) == (False, [], False)
    assert rig.writes() == []
    assert rig.history() == [(1, "deployed")]
    assert rig.run(check_mode=True)["changed"] is False


@pytest.mark.parametrize("what", ["daemonset/gpushare-device-plugin-ds", "clusterrole/gpushare-device-plugin"])
def test_a_deleted_object_is_made_again(installed: Rig, what: str) -> None:
    installed.kubectl("delete", what, "--cascade=foreground")
    result = installed.run()
    assert result["plan"] == [f"upgrade component {NAME} to 0.1.0 (objects)"]
    assert len(result["diff"][0]["after"]) == 1
    assert installed.kubectl("get", what, "--output=name")
    assert installed.run()["changed"] is False


def test_an_edited_object_is_put_right_and_what_others_added_stays(installed: Rig) -> None:
    ds = "daemonset/gpushare-device-plugin-ds"
    installed.kubectl("set", "image", ds, "gpushare-device-plugin-ds=registry.example.test/hand:1")
    installed.kubectl("label", ds, "team=ours")
    assert installed.run()["changed"]
    found = installed.get("daemonset", "gpushare-device-plugin-ds")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"].endswith("gpushare-device-plugin:2.0.0")
    assert found["metadata"]["labels"]["team"] == "ours"
    assert installed.run()["changed"] is False


def test_a_changed_template_of_the_same_version_is_applied(installed: Rig, tmp_path: Path) -> None:
    changed = chart(tmp_path, edit=lambda text: text.replace("name: MEMORY_UNIT", "name: GPU_MEMORY_UNIT"))
    assert installed.run(chart=changed)["changed"]
    env = installed.get("daemonset", "gpushare-device-plugin-ds")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "GPU_MEMORY_UNIT", "value": "GiB"} in env
    assert installed.run(chart=changed)["changed"] is False


def test_a_part_that_is_turned_off_is_removed(installed: Rig) -> None:
    result = installed.run(values={"gputopo": {"enabled": False}})
    assert "DaemonSet kube-system/gputopo-device-plugin-ds" in result["diff"][0]["before"]
    assert "gputopo" not in installed.kubectl("get", "daemonsets", "--output=name")
    assert installed.run(values={"gputopo": {"enabled": False}})["changed"] is False


def test_values_that_the_release_holds_are_kept_unless_they_are_to_be_exact(installed: Rig) -> None:
    installed.run(values={"gputopo": {"enabled": False}})  # silent about everything else
    assert "gputopo" not in installed.kubectl("get", "daemonsets", "--output=name")
    assert installed.run()["changed"] is False
    assert installed.run(values_mode="exact")["changed"]
    assert "gputopo" in installed.kubectl("get", "daemonsets", "--output=name")


# --- policy ---


def test_an_unset_policy_keeps_what_was_set_before(installed: Rig) -> None:
    assert installed.run(policy=3)["components"][0]["policy"] == 3
    assert installed.policies() == {"3"}
    assert installed.run()["changed"] is False
    assert installed.run(values=image("1.5.21"))["components"][0]["policy"] == 3
    assert installed.policies() == {"3"}


def test_an_unset_policy_keeps_what_was_edited_on_the_daemonsets(installed: Rig) -> None:
    installed.kubectl("set", "env", "daemonset/cgpu-installer", "daemonset/cgpu-core-installer", "POLICY=2")
    assert installed.run()["components"][0]["policy"] == 2
    assert installed.policies() == {"2"}
    assert json.loads(installed.helm("get", "values", NAME, "--output=json"))["policy"] == 2
    assert installed.run()["changed"] is False


def test_two_policies_on_one_cluster_are_refused_until_one_is_asked_for(installed: Rig) -> None:
    installed.kubectl("set", "env", "daemonset/cgpu-core-installer", "POLICY=2")
    assert refusal(installed).code == "CMP-POLICY-MIXED"
    installed.run(policy=5)
    assert installed.policies() == {"5"}


def moved_policy(text: str) -> str:
    return text.replace(".Values.policy", ".Values.cgpu.policy")


def vendors(tmp_path: Path, version: str = "1.12.6") -> Path:
    """A chart of somebody else that keeps the policy elsewhere and sets no priority."""
    made = chart(tmp_path, version, vendor=True, edit=lambda text: moved_policy(text).replace(
        "priorityClassName: system-node-critical", "dnsPolicy: ClusterFirst"))  # fmt: skip
    (made / "values.schema.json").unlink()
    return made


def test_a_policy_path_that_the_chart_does_not_read_is_found_before_anything_is_written(
    rig: Rig, tmp_path: Path
) -> None:
    theirs = vendors(tmp_path)
    values = merged(VALUES, {"cgpu": {"policy": 4}})
    error = refusal(rig, chart=theirs, policy=3, values=values)
    assert error.code == "CMP-POLICY-PATH"
    assert rig.run(chart=theirs, policy_path="cgpu.policy", values=values)["components"][0]["policy"] == 4
    assert rig.policies() == {"4"}


# --- a new version ---


def test_a_new_version_disturbs_no_node_and_the_nodes_that_keep_the_old_one_are_named(installed: Rig) -> None:
    result = installed.run(values=image("1.5.21"), check_mode=True)
    assert [each["node"] for each in result["components"][0]["nodes_behind"]] == list(NODES)
    pods = installed.kubectl("get", "pods", "--selector=name=cgpu-installer", "--output=name")
    behind = installed.run(values=image("1.5.21"))["components"][0]["nodes_behind"]
    assert [(each["node"], each["image"][-6:], each["wanted_image"][-6:]) for each in behind] == [
        (node, "1.5.20", "1.5.21") for node in NODES
    ]
    assert installed.kubectl("get", "pods", "--selector=name=cgpu-installer", "--output=name") == pods
    installed.kubectl("delete", pods.split()[0])
    installed.kubectl("rollout", "status", "daemonset/gpushare-device-plugin-ds", "--timeout=20s")
    again = installed.run(values=image("1.5.21"))
    assert again["changed"] is False
    assert len(again["components"][0]["nodes_behind"]) == 1


def test_an_upgrade_to_a_newer_chart_says_from_where(installed: Rig, tmp_path: Path) -> None:
    newer = chart(tmp_path, "0.2.0")
    result = installed.run(chart=newer, version="0.2.0")
    assert "to 0.2.0 (from 0.1.0" in result["plan"][0]
    assert installed.run(chart=newer, version="0.2.0")["changed"] is False
    assert [finding["code"] for finding in installed.run(check_mode=True)["findings"]] == ["CMP-DOWNGRADE"]


def test_a_packed_chart_is_as_good_as_a_folder(rig: Rig, tmp_path: Path) -> None:
    rig.helm("package", str(CHART), f"--destination={tmp_path}")
    assert rig.run(chart=tmp_path / f"{NAME}-0.1.0.tgz")["changed"]
    assert rig.run()["changed"] is False


# --- up, or not ---


@pytest.fixture
def silent(rig: Rig) -> Iterator[str]:
    """A node that looks Ready and whose kubelet does nothing: its pods stay Pending until `play` starts them."""
    name = "component-silent"
    rig.node(name, played=False)
    yield name
    rig.kubectl("delete", "node", name)


def test_what_does_not_come_up_is_named_and_nothing_is_installed_twice(rig: Rig, silent: str) -> None:
    with pytest.raises(AckError) as late:
        rig.run(timeout=3)
    assert late.value.code == "CMP-NOT-UP"
    assert "DaemonSet kube-system/cgpu-installer: 2 of 3 pods are up" in str(late.value)
    assert f"on {silent}: Pending" in str(late.value)
    rig.play(silent)
    assert rig.run()["changed"] is False
    assert rig.history() == [(1, "deployed")]


def test_a_node_that_is_down_is_not_waited_for(rig: Rig, silent: str) -> None:
    rig.condition(silent, "Unknown")
    assert rig.run(timeout=20)["changed"]
    status = rig.get("daemonset", "cgpu-installer")["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 2)


# --- whose it is ---


def test_our_chart_never_replaces_a_release_that_came_from_another(rig: Rig, tmp_path: Path) -> None:
    theirs = vendors(tmp_path)
    values = merged(VALUES, {"cgpu": {"policy": 5}})
    rig.helm("install", NAME, str(theirs), "--values=-", stdin=json.dumps(values))
    assert refusal(rig).code == "CMP-FOREIGN"  # and not that our schema refuses their values
    assert "upgrade" not in "".join(rig.run(chart=theirs, policy_path="cgpu.policy", values=values)["plan"])
    assert refusal(rig, state="absent").code == "CMP-REMOVAL"
    assert rig.run(state="absent", accept=["removal"])["changed"]
    assert rig.status() == ""


def test_a_release_of_a_longer_name_is_another_release(rig: Rig, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "templates").mkdir(parents=True)
    (other / "Chart.yaml").write_text("apiVersion: v2\nname: other\nversion: 1.0.0\n")
    rig.helm("install", f"{NAME}-2", str(other))
    try:
        assert rig.run()["plan"] == [f"install component {NAME} 0.1.0"]
        assert rig.run(state="absent")["changed"]
        assert f"{NAME}-2" in rig.helm("list")
    finally:
        rig.helm("uninstall", f"{NAME}-2")


def test_objects_of_others_are_named_with_their_owner_and_adopted_on_request(rig: Rig) -> None:
    rig.kubectl("create", "serviceaccount", "cgpu-installer")
    rig.kubectl("create", "serviceaccount", "gpushare-device-plugin")
    error = refusal(rig)
    for name in ("cgpu-installer", "gpushare-device-plugin"):
        assert f"HLM-OWNED ServiceAccount kube-system/{name}: found belongs to nobody" in str(error)
    assert rig.run(accept=["adopt_objects"])["changed"]
    assert rig.run()["changed"] is False


def test_what_the_api_would_refuse_is_known_before_anything_is_written(rig: Rig, tmp_path: Path) -> None:
    broken = chart(tmp_path, edit=lambda text: text.replace("type: OnDelete", "type: Never"))
    for check_mode in (True, False):
        error = refusal(rig, chart=broken, check_mode=check_mode)
        assert error.code == "CMP-REFUSED"
        for name in ("cgpu-installer", "cgpu-core-installer"):
            assert f"HLM-REFUSED DaemonSet kube-system/{name}: found refused with 422" in str(error)
        assert '"Never"' in str(error)
    assert rig.status() == ""


def test_values_that_the_charts_schema_refuses_are_told_with_their_place(rig: Rig) -> None:
    error = refusal(rig, values={**VALUES, "pilocy": 3})
    assert error.code == "HLM-RENDER"
    assert "additional properties 'pilocy' not allowed" in str(error)


def test_priority_is_set_where_the_vendors_chart_forgets_it_and_stays(rig: Rig, tmp_path: Path) -> None:
    theirs, values = vendors(tmp_path), merged(VALUES, {"cgpu": {"policy": 5}})
    assert len(rig.run(chart=theirs, policy_path="cgpu.policy", values=values)["plan"]) == 4
    for name in ("gpushare-device-plugin-ds", "gpushare-core-device-plugin-ds", "gpushare-mps-device-plugin-ds"):
        pod = rig.get("daemonset", name)["spec"]["template"]["spec"]
        assert pod["priorityClassName"] == "system-node-critical"
    assert rig.run(chart=theirs, policy_path="cgpu.policy", values=values)["changed"] is False
    newer = vendors(tmp_path, "1.12.7")
    assert len(rig.run(chart=newer, policy_path="cgpu.policy", values=values)["plan"]) == 1


# --- removed ---


def test_a_removed_component_is_gone_with_its_objects_and_a_second_removal_writes_nothing(installed: Rig) -> None:
    result = installed.run(state="absent")
    assert result["plan"] == [f"uninstall release kube-system/{NAME}"]
    assert installed.status() == ""
    assert "cgpu" not in installed.kubectl("get", "daemonsets,serviceaccounts", "--output=name")
    assert installed.run(state="absent")["changed"] is False
    assert installed.writes() == []
    assert installed.run(state="absent", check_mode=True)["changed"] is False


# --- secrets, and what is missing ---


def test_no_value_ever_stands_in_an_argument_list(rig: Rig, tmp_path: Path) -> None:
    log, spy = tmp_path / "argv", tmp_path / "helm"
    spy.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\nexec {rig.sandbox.bin}/helm "$@"\n')
    spy.chmod(spy.stat().st_mode | stat.S_IXUSR)
    result = rig.run(helm_binary=str(spy), values={**VALUES, "imagePullSecrets": [{"name": "planted"}]})
    pod = rig.get("daemonset", "cgpu-installer")["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "planted"}]
    assert "upgrade" in log.read_text().split()
    assert "planted" not in log.read_text()
    assert "planted" not in json.dumps({key: part for key, part in result.items() if key != "diff"})


def test_a_missing_helm_is_one_clear_error(rig: Rig) -> None:
    error = refusal(rig, helm_binary="/nowhere/helm")
    assert error.code == "HLM-BINARY"
    assert "component_helm_binary" in str(error)


def test_a_chart_that_is_not_there_is_one_clear_error(rig: Rig) -> None:
    assert refusal(rig, chart="/nowhere/chart").code == "HLM-CHART"
    assert refusal(rig, version="9.9.9").code == "CMP-VERSION"


def test_all_components_are_checked_before_the_first_is_touched(rig: Rig) -> None:
    params = rig.params()
    params["components"].append({"name": NAME, "chart": str(CHART), "policy": 9})
    with pytest.raises(AckError, match="CMP-POLICY"):
        component_rig.module.run(params, check_mode=False, diff=False)
    assert rig.writes() == []


def test_a_missing_kubeconfig_is_one_clear_error(rig: Rig) -> None:
    params = {**rig.params(), "kubeconfig": "/nowhere/kubeconfig"}
    with pytest.raises(AckError, match=r"/nowhere/kubeconfig.*KUB-CONFIG"):
        component_rig.module.run(params, check_mode=False, diff=False)


def test_a_user_without_rights_is_told_which_are_missing(rig: Rig) -> None:
    params = rig.params()
    params["kubeconfig"] = str(rig.sandbox.user("nobody", "nobody"))
    with pytest.raises(AckError) as refused:
        component_rig.module.run(params, check_mode=False, diff=False)
    assert "forbidden" in str(refused.value)
    assert rig.status() == ""


# --- how it was installed ---


def told(rig: Rig, **origins: str) -> dict[str, Any]:
    given = {
        "helm_binary": str(rig.sandbox.bin / "helm"),
        "kubeconfig": str(rig.sandbox.kubeconfig),
        "origins": origins,
    }
    (found,) = component_info.run(given)["components"]
    return dict(found)


def test_what_is_installed_is_told_with_its_state_and_what_its_origin_rests_on(rig: Rig, tmp_path: Path) -> None:
    assert (told(rig)["state"], told(rig)["origin"]) == ("absent", "none")
    theirs = chart(tmp_path, "1.12.6", vendor=True)
    rig.helm("install", NAME, str(theirs), "--values=-", stdin=json.dumps(VALUES))
    found = told(rig)
    assert (found["state"], found["version"], found["origin"]) == ("deployed", "1.12.6", "unknown")
    assert found["policies"] == {"cgpu-installer": "5", "cgpu-core-installer": "5"}
    assert told(rig, **{NAME: "app_catalog"})["origin"] == "app_catalog"
    assert rig.run(state="absent", accept=["removal"])["changed"]
    rig.run()
    assert told(rig)["origin"] == "ack.ai_suite"

"""CS: add-ons of the cluster, their catalogue, and the tasks that install, upgrade and remove them."""

from __future__ import annotations

import json
from typing import Any

from sandbox.cloud import tasks
from sandbox.cloud.addon_catalogue import CATALOGUE, Addon
from sandbox.cloud.cs_clusters import cluster_of
from sandbox.cloud.errors import error
from sandbox.cloud.world import Call, World

Record = dict[str, Any]
INSTALL, UPGRADE, UNINSTALL = "addon_install", "addon_upgrade", "addon_uninstall"


def list_addons(world: World, call: Call) -> Record:
    _check_scope(world, call)
    return {"addons": [_offer(name, addon) for name, addon in sorted(CATALOGUE.items())]}


def describe_addon(world: World, call: Call) -> Record:
    _check_scope(world, call)
    name = call.path["addon_name"]
    addon = _offered(name)
    version = call.query.get("version", addon.versions[-1])
    newer = addon.versions[_place(name, version) + 1 :]
    return {
        **_offer(name, addon), "version": version,
        "newer_versions": [
            {"version": each, "minimum_cluster_version": addon.minimum_cluster_version, "upgradable": True}
            for each in newer
        ],
    }  # fmt: skip


def list_cluster_addon_instances(world: World, call: Call) -> Record:
    cluster_of(world, call)
    return {
        "addons": [
            {"name": name, "version": each["version"], "state": each["state"]}
            for name, each in sorted(world.data["addons"].items())
        ]
    }


def get_cluster_addon_instance(world: World, call: Call) -> Record:
    cluster_of(world, call)
    installed = _installed(world, call.path["instance_name"])
    return {
        "name": call.path["instance_name"], "version": installed["version"], "state": installed["state"],
        "config": installed["config"], "logging": {"capable": False, "enabled": False},
    }  # fmt: skip


def describe_cluster_addons_version(world: World, call: Call) -> Record:
    """The old call: every add-on of the catalogue; a version that is not empty means that it is installed."""
    cluster_of(world, call)
    answer = {}
    for name, addon in sorted(CATALOGUE.items()):
        version = world.data["addons"].get(name, {}).get("version", "")
        newest = addon.versions[-1]
        can_upgrade = bool(version) and version != newest
        answer[name] = {
            "component_name": name, "version": version, "next_version": newest if can_upgrade else "",
            "can_upgrade": can_upgrade, "changed": "", "message": "", "required": addon.by_default, "policy": "",
        }  # fmt: skip
    return answer


def install_cluster_addons(world: World, call: Call) -> Record:
    cluster_of(world, call)
    wanted = _named(call, "name")
    for each in wanted:
        addon = _offered(each["name"])
        if each["name"] in world.data["addons"]:
            raise error("AddonAlreadyInstalled", name=each["name"])
        _place(each["name"], each.get("version", addon.versions[-1]))
        _check_config(call, each.get("config", ""))
    for each in wanted:
        version = each.get("version", CATALOGUE[each["name"]].versions[-1])
        world.data["addons"][each["name"]] = {
            "version": version, "state": "updating", "config": each.get("config", "{}"),
        }  # fmt: skip
    return _accepted(world, call, INSTALL, [each["name"] for each in wanted])


def upgrade_cluster_addons(world: World, call: Call) -> Record:
    cluster_of(world, call)
    wanted = _named(call, "component_name")
    for each in wanted:
        name, installed = each["component_name"], _installed(world, each["component_name"])
        next_version = each.get("next_version", _offered(name).versions[-1])
        if _place(name, next_version) <= _place(name, installed["version"]):
            raise error("AddonNotUpgradable", name=name, version=installed["version"], next_version=next_version)
        _check_config(call, each.get("config", ""))
    for each in wanted:
        installed = world.data["addons"][each["component_name"]]
        installed |= {
            "state": "upgrading", "config": each.get("config", installed["config"]),
            "next": each.get("next_version", CATALOGUE[each["component_name"]].versions[-1]),
        }  # fmt: skip
    return _accepted(world, call, UPGRADE, [each["component_name"] for each in wanted])


def modify_cluster_addon(world: World, call: Call) -> None:
    cluster_of(world, call)
    _check_config(call, call.body["config"])
    _installed(world, call.path["component_id"])["config"] = call.body["config"]


def uninstall_cluster_addons(world: World, call: Call) -> Record:
    cluster_of(world, call)
    names = [each["name"] for each in _named(call, "name")]
    for name in names:
        _installed(world, name)
    for name in names:
        world.data["addons"][name]["state"] = "deleting"
    return _accepted(world, call, UNINSTALL, names)


def _carry_on(world: World, task: Record) -> bool:
    if not tasks.is_old_enough(world, task):
        return False
    for name in task["result"]:
        addon = world.data["addons"].get(name)
        if addon and task["task_type"] == UNINSTALL:
            del world.data["addons"][name]
        elif addon:
            addon |= {"state": "active", "version": addon.pop("next", addon["version"])}
        task["result"][name] = "done"
    return True


def _abandon(world: World, task: Record) -> None:
    for name in task["result"]:
        addon = world.data["addons"].get(name)
        if addon and task["task_type"] == INSTALL:
            del world.data["addons"][name]
        elif addon:
            addon["state"] = "active"
            addon.pop("next", None)
        task["result"][name] = "failed"


tasks.KINDS |= dict.fromkeys((INSTALL, UPGRADE, UNINSTALL), tasks.Kind(_carry_on, _abandon))


def _check_scope(world: World, call: Call) -> None:
    wanted = call.query.get("cluster_id", world.data["cluster"]["cluster_id"])
    if wanted != world.data["cluster"]["cluster_id"]:
        raise error("ErrorClusterNotFound", id=wanted)


def _offered(name: str) -> Addon:
    if name not in CATALOGUE:
        raise error("AddonNotFound", name=name)
    return CATALOGUE[name]


def _installed(world: World, name: str) -> Record:
    addon: Record | None = world.data["addons"].get(name)
    if addon is None:
        raise error("AddonNotFound", name=name)
    return addon


def _place(name: str, version: str) -> int:
    """How many versions are older. Raises AddonVersionNotFound."""
    try:
        return _offered(name).versions.index(version)
    except ValueError:
        raise error("AddonVersionNotFound", name=name, version=version) from None


def _named(call: Call, key: str) -> list[Record]:
    if not call.body or any(key not in each for each in call.body):
        raise error("InvalidParameter.Body", action=call.action, why=f"each entry needs {key}")
    return list(call.body)


def _check_config(call: Call, text: str) -> None:
    try:
        fits = not text or isinstance(json.loads(text), dict)
    except ValueError:
        fits = False
    if not fits:
        raise error("InvalidParameter.Body", action=call.action, why="config must be the text of a JSON object")


def _offer(name: str, addon: Addon) -> Record:
    return {
        "name": name, "version": addon.versions[-1], "category": addon.category, "managed": addon.managed,
        "install_by_default": addon.by_default, "config_schema": addon.config_schema, "architecture": ["amd64"],
        "supported_actions": ["Install", "Upgrade", "Modify", "Uninstall"],
    }  # fmt: skip


def _accepted(world: World, call: Call, task_type: str, names: list[str]) -> Record:
    cluster_id = world.data["cluster"]["cluster_id"]
    task = tasks.start(
        world, task_type, target={"id": cluster_id, "type": "cluster"}, parameters={"addons": ",".join(names)},
        notes={}, items=names, faults=call.faults,
    )  # fmt: skip
    return {"cluster_id": cluster_id, "request_id": call.request_id, "task_id": tasks.answer_id(task)}

"""Promises that hold for every noun: where its pieces are, and that what is written twice is the same twice."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import docs

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
CODE = [path for folder in ("plugins", "sandbox") for path in (ROOT / folder).rglob("*.py")]
CODE_FORM = re.compile(r"\"((?:PRE|RAM|POOL|CMP|UPG|GPU|KUB|CLD|HLM|SNP|SBX|INT)-[A-Z0-9][A-Z0-9-]*)\"")


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def documentation(module: str) -> dict[str, Any]:
    """What ansible-doc says of a module, its fragments included."""
    return _all_documentation()[f"ack.ai_suite.{module}"]["doc"]


def _all_documentation(cache: dict[str, Any] = {}) -> dict[str, Any]:  # noqa: B006 - asked once for all tests
    if not cache:
        names = [f"ack.ai_suite.{name}" for name in MODULES]
        done = subprocess.run(
            [str(Path(sys.executable).parent / "ansible-doc"), "--json", "--type", "module", *names],
            capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        )  # fmt: skip
        cache.update(json.loads(done.stdout))
    return cache


@pytest.mark.parametrize("noun", docs.NOUNS)
def test_every_piece_of_a_noun_is_where_the_readme_says(noun: str) -> None:
    missing = [path for path in docs.pieces(noun).values() if not (ROOT / path).is_file()]
    assert not missing


def test_generated_documents_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(check=True) == 0, capsys.readouterr().out


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_same_files_as_every_other(role: str) -> None:
    wanted = ["README.md", "defaults/main.yml", "meta/argument_specs.yml", "meta/main.yml", "tasks/main.yml"]
    assert [name for name in wanted if not (ROOT / "roles" / role / name).is_file()] == []


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_of_a_role_agree(role: str) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    specified = {name: option["default"] for name, option in options.items() if option.get("default") is not None}
    given = {
        name: value for name, value in (load(f"roles/{role}/defaults/main.yml") or {}).items() if value is not None
    }
    assert given == specified
    assert all(name.startswith(f"{role}_") for name in options)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_refuses_variables_that_it_does_not_know(role: str) -> None:
    first = load(f"roles/{role}/tasks/main.yml")[0]
    assert "ansible.builtin.assert" in first
    assert f"^{role}_" in json.dumps(first)


@pytest.mark.parametrize("environment", ["sandbox", "example"])
@pytest.mark.parametrize("role", ROLES)
def test_inventories_give_only_variables_that_the_role_knows(role: str, environment: str) -> None:
    options = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    path = ROOT / "inventories" / environment / "group_vars" / "all" / f"{role}.yml"
    given = (load(str(path.relative_to(ROOT))) or {}) if path.is_file() else {}
    assert {name for name in given if name.startswith(f"{role}_")} <= set(options)


@pytest.mark.parametrize("module", MODULES)
def test_the_documentation_of_a_module_is_its_argument_spec(module: str) -> None:
    path = ROOT / ".ansible/collections/ansible_collections/ack/ai_suite/plugins/modules" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(f"contract_{module}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    documented = documentation(module)["options"]
    assert _shape(documented, "suboptions") == _shape(loaded.ARGUMENT_SPEC, "options")


def _shape(options: dict[str, Any], nested: str) -> dict[str, Any]:
    return {
        name: (
            option.get("type", "str"), option.get("elements"), bool(option.get("required")), option.get("default"),
            sorted(map(str, option.get("choices") or ())), _shape(option.get(nested) or {}, nested),
        )
        for name, option in options.items()
    }  # fmt: skip


def test_every_module_takes_the_connection_of_the_play() -> None:
    groups = load("meta/runtime.yml")["action_groups"]["all"]
    assert sorted(groups) == MODULES


def test_every_error_code_has_a_line_in_the_documents() -> None:
    documented = set(
        re.findall(r"`([A-Z]+-[A-Z0-9-]+)`", "".join(p.read_text() for p in (ROOT / "docs/errors").glob("*.md")))
    )
    used = {code for path in CODE for code in CODE_FORM.findall(path.read_text())}
    assert used - documented == set()


def test_every_play_is_for_clusters_and_gathers_no_facts() -> None:
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text()):
            if "ansible.builtin.import_playbook" not in play:
                assert (play["hosts"], play["gather_facts"]) == ("ack_clusters", False), path.name


def test_no_file_outside_the_core_and_the_sandbox_reads_the_clock() -> None:
    readers = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "plugins").rglob("*.py")
        if re.search(r"datetime\.now|time\.time\(|time\.sleep|time\.monotonic|utcnow", path.read_text())
    ]
    assert readers == ["plugins/module_utils/clients/clock.py"]

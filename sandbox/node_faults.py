"""Failures of one machine on demand: files in ``nodes/<node>/run/faults``, which the process machines obeys."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.layout import Layout, write_private

FAULTS: Mapping[str, str] = {
    "reboot-never-returns": "the machine goes down for a reboot and stays down",
    "module-does-not-load": "a cgpu-installer pod runs, but the kernel module isn't loaded",
    "uninstall-script-missing": "/usr/local/cgpu-installer/uninstall.sh isn't there",
    "uninstall-fails": "the uninstall script ends with an error",
    "slow": "each step takes VALUE seconds longer",
    "card-lost": "VALUE cards (default 1) don't come back with the next boot",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of ``sandbox fault NODE``."""
    text = "; ".join(f"{name}: {meaning}" for name, meaning in FAULTS.items())
    parser.add_argument("fault", nargs="?", choices=sorted(FAULTS), help=text)
    parser.add_argument("value", nargs="?", default="", metavar="VALUE")
    parser.add_argument("--clear", action="store_true", help="forget this fault, or all of the node's")


def apply(layout: Layout, node: str, options: argparse.Namespace) -> str:
    """Ask for a fault, forget it, or list what is asked for; returns what to print."""
    if node not in _nodes(layout):
        raise SandboxError(
            f"node {node!r}", "isn't a machine of this sandbox.", f"One of: {', '.join(_nodes(layout))}.", "SBX-FAULT"
        )
    folder = layout.nodes / node / "run" / "faults"
    if options.fault and not options.clear:
        _refuse_useless(options.fault, options.value)
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / options.fault, options.value)
    elif options.clear:
        for name in [options.fault] if options.fault else FAULTS:
            (folder / name).unlink(missing_ok=True)
    return "\n".join(_asked_for(folder)) or "no faults"


def _nodes(layout: Layout) -> list[str]:
    return sorted(folder.name for folder in layout.nodes.iterdir() if folder.is_dir())


def _asked_for(folder: Path) -> list[str]:
    found = [folder / name for name in FAULTS if (folder / name).exists()]
    return [f"{path.name} {path.read_text()}".strip() for path in found]


def _refuse_useless(fault: str, value: str) -> None:
    """A value that the fault can't mean would be obeyed in silence."""
    wants = {"slow": float, "card-lost": int}.get(fault)
    try:
        usable = not value if wants is None else wants(value or 1) > 0 and (fault != "slow" or value)
    except ValueError:
        usable = False
    if not usable:
        raise SandboxError(f"fault {fault}", f"has no use for the value {value!r}.", FAULTS[fault] + ".", "SBX-FAULT")

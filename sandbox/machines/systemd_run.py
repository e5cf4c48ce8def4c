"""`systemd-run` and `journalctl`: transient units, and what they wrote."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from sandbox.machines.result import Result, fail, lines
from sandbox.machines.systemctl import full_name
from sandbox.machines.systemd import Unit

if TYPE_CHECKING:
    from sandbox.machines.host import Host

_WITH_VALUE = {
    "--unit": "-u", "--property": "-p", "--setenv": "-E", "--description": "", "--slice": "", "--uid": "", "--gid": "",
    "--nice": "", "--working-directory": "", "--service-type": "",
}  # fmt: skip
_FLAGS = {
    "--collect": "-G", "--wait": "", "--quiet": "-q", "--no-block": "", "--remain-after-exit": "-r",
    "--no-ask-password": "", "--same-dir": "-d", "--send-sighup": "", "--system": "",
}  # fmt: skip


def parse(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options (long name to values) and the command. Raises ValueError with systemd's words."""
    short = {each: name for name, each in (_WITH_VALUE | _FLAGS).items() if each}
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, has_value, value = word.partition("=")
        if not word.startswith("--"):
            name, value = word[:2], word[2:]
            has_value = value
        name = short.get(name, name)
        if name in _WITH_VALUE:
            if not has_value:
                if not rest:
                    raise ValueError(f"systemd-run: option '{word}' requires an argument")
                value = rest.pop(0)
            options.setdefault(name, []).append(value)
        elif name in _FLAGS:
            options.setdefault(name, [])
        else:
            raise ValueError(f"systemd-run: unrecognized option '{word}'")
    if not rest:
        raise ValueError("Command line to execute required.")
    return options, rest


def unit_of(options: dict[str, list[str]], argv: list[str]) -> Unit:
    """The unit that a command line describes."""
    name = full_name(options.get("--unit", [f"run-r{uuid.uuid4().hex}"])[-1])
    properties = dict(each.partition("=")[::2] for each in options.get("--property", []))
    if "--working-directory" in options:
        properties["WorkingDirectory"] = options["--working-directory"][-1]
    given = [*options.get("--setenv", []), *([properties["Environment"]] if "Environment" in properties else [])]
    return Unit(
        name,
        enabled="transient",
        argv=argv,
        environment=dict(each.partition("=")[::2] for each in given),
        properties=properties,
        description=options.get("--description", [" ".join(argv)])[-1],
        collect="--collect" in options,
        remain="--remain-after-exit" in options or properties.get("RemainAfterExit") in ("yes", "true", "1"),
    )


async def systemd_run(host: Host, arguments: list[str]) -> Result:
    """Start a transient unit; refused, as systemd does, while a unit of that name is known."""
    try:
        options, argv = parse(arguments)
    except ValueError as problem:
        return fail(str(problem))
    unit = unit_of(options, argv)
    if unit.name in host.systemd.units:
        return fail(
            f"Failed to start transient service unit: Unit {unit.name} was already loaded or has a fragment file."
        )
    if not host.has_program(argv[0]):
        return fail(f"Failed to find executable {argv[0]}: No such file or directory")
    host.systemd.run(unit, host.run_unit)
    said = "" if "--quiet" in options else f"Running as unit: {unit.name}\n"
    if "--wait" in options:
        await unit.done.wait()
        return Result(err=said, code=unit.exit_code)
    return Result(err=said)


def journalctl(host: Host, arguments: list[str]) -> Result:
    """`-u UNIT`, `-n N`, `-o cat`; oldest first, as journalctl prints."""
    units, count, plain = [], None, False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if name in ("-u", "--unit"):
            units.append(full_name(value or rest.pop(0)))
        elif name in ("-n", "--lines"):
            given = value or rest.pop(0)
            count = None if given == "all" else int(given)
        elif name in ("-o", "--output"):
            plain = (value or rest.pop(0)) == "cat"
    entries = [entry for entry in host.systemd.journal() if not units or entry["unit"] in units]
    shown = entries[-count:] if count else entries
    if not shown:
        return lines("-- No entries --")
    return lines(*(str(entry["text"]) if plain else _line(host.machine.name, entry) for entry in shown))


def _line(node: str, entry: dict[str, object]) -> str:
    moment = time.strftime("%b %d %H:%M:%S", time.localtime(float(str(entry["time"]))))
    return f"{moment} {node} {entry['identifier']}[{entry['pid']}]: {entry['text']}"

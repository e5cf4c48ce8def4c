"""`systemctl`: as far as a node's operator, a script or a probe goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox.machines.result import Result, fail, lines
from sandbox.machines.systemd import TRIGGERS, Unit

if TYPE_CHECKING:
    from sandbox.machines.host import Host

_WITH_VALUE = ("-p", "--property", "-t", "--type", "--state", "-n", "--lines", "-o", "--output", "-s", "--signal")
Verb = Callable[["Host", list[str], dict[str, str]], Result]


async def systemctl(host: Host, arguments: list[str]) -> Result:
    """Run a command line of systemctl."""
    words, options = parse(arguments)
    verb, names = (words[0], words[1:]) if words else ("list-units", [])
    known = _VERBS.get(verb)
    if known is None:
        return fail(f"Unknown command verb '{verb}'.")
    if verb in _NEEDS_UNIT and not names:
        return fail("Too few arguments.")
    done = known(host, [full_name(name) for name in names], options)
    await host.settle()
    return done


def parse(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Words and options; `--property=X`, `--property X` and `-pX` are the same."""
    words: list[str] = []
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in _WITH_VALUE and rest:
            key, value = word, rest.pop(0)
        elif word.startswith("--"):
            key, _, value = word.partition("=")
        elif word.startswith("-p") and len(word) > 2:
            key, value = "-p", word[2:]
        elif word.startswith("-") and len(word) > 1:
            key, value = word, ""
        else:
            words.append(word)
            continue
        key = {"-p": "--property", "-q": "--quiet", "-t": "--type"}.get(key, key)
        options[key] = f"{options[key]},{value}" if key in options and value else value
    return words, options


def full_name(name: str) -> str:
    return name if "." in name else f"{name}.service"


def _missing(name: str, verb: str) -> Result:
    return fail(f"Failed to {verb} {name}: Unit {name} not found.", 5)


def _each(host: Host, names: list[str], verb: str, act: Callable[[Unit], Result | None]) -> Result:
    """Do a thing with each unit; go on after an error, and end with the last one's status."""
    errors, code = "", 0
    for name in names:
        unit = host.systemd.units.get(name)
        answer = _missing(name, verb) if unit is None else act(unit)
        if answer is not None:
            errors, code = errors + answer.err, answer.code or code
    return Result(err=errors, code=code)


def _start(host: Host, names: list[str], _: dict[str, str]) -> Result:
    def act(unit: Unit) -> Result | None:
        if unit.enabled == "masked":
            return fail(f"Failed to start {unit.name}: Unit {unit.name} is masked.")
        if host.shuts_down:
            return fail(
                f"Failed to start {unit.name}: Transaction is destructive (reboot.target has 'start' job queued)."
            )
        host.systemd.start(unit)
        return None

    return _each(host, names, "start", act)


def _stop(host: Host, names: list[str], _: dict[str, str]) -> Result:
    def act(unit: Unit) -> Result | None:
        host.stop_unit(unit)
        sockets = [
            socket for socket, service in TRIGGERS.items() if service == unit.name and host.systemd.active(socket)
        ]
        if sockets and not set(sockets) & set(names):
            warning = f"Warning: Stopping {unit.name}, but it can still be activated by:\n  {' '.join(sockets)}\n"
            return Result(err=warning)
        return None

    # systemd stops all of one job together: the order on the command line doesn't matter.
    return _each(host, sorted(names, key=lambda name: name not in TRIGGERS), "stop", act)


def _restart(host: Host, names: list[str], options: dict[str, str]) -> Result:
    stopped = _stop(host, names, options)
    return stopped if stopped.code else _start(host, names, options)


def _enable(state: str, verb: str) -> Verb:
    def run(host: Host, names: list[str], options: dict[str, str]) -> Result:
        def act(unit: Unit) -> Result | None:
            if unit.transient:
                return fail(f"Failed to {verb} unit: Unit {unit.name} is transient or generated.")
            if unit.enabled == "masked" and verb in ("enable", "disable"):
                return fail(f"Failed to {verb} unit: Unit file /etc/systemd/system/{unit.name} is masked.")
            unit.enabled = state
            return None

        done = _each(host, names, verb, act)
        if not done.code and "--now" in options:
            return _start(host, names, options) if state == "enabled" else _stop(host, names, options)
        return done

    return run


def _query(word: Callable[[Unit | None], str], good: tuple[str, ...], bad_code: int) -> Verb:
    def run(host: Host, names: list[str], options: dict[str, str]) -> Result:
        words = [word(host.systemd.units.get(name)) for name in names]
        out = "" if "--quiet" in options else "".join(f"{each}\n" for each in words)
        return Result(out, code=0 if any(each in good for each in words) else bad_code)

    return run


def properties(unit: Unit | None, name: str) -> dict[str, str]:
    """What `systemctl show` says; also of a unit that nobody knows, with the values of a fresh one."""
    known = unit or Unit(name, enabled="")
    load = "not-found" if unit is None else "masked" if unit.enabled == "masked" else "loaded"
    return {
        "Id": name,
        "Description": known.description or name,
        "LoadState": load,
        "ActiveState": known.active,
        "SubState": known.sub,
        "UnitFileState": known.enabled,
        "Result": known.result,
        "ExecMainStatus": str(known.exit_code),
        "ExecMainCode": "1" if unit is not None and known.active != "active" and known.argv else "0",
        "ExecMainPID": str(known.pid),
        "MainPID": str(known.pid if known.active == "active" else 0),
        "InvocationID": known.invocation,
        "Transient": "yes" if known.transient else "no",
        "RemainAfterExit": "yes" if known.remain else "no",
    }


def _show(host: Host, names: list[str], options: dict[str, str]) -> Result:
    wanted = [each for each in options.get("--property", "").split(",") if each]
    blocks = []
    for name in names:
        found = properties(host.systemd.units.get(name), name)
        chosen = {key: found[key] for key in wanted if key in found} if wanted else found
        blocks.append(
            "".join(f"{value}\n" if "--value" in options else f"{key}={value}\n" for key, value in chosen.items())
        )
    return Result("\n".join(blocks))


def _status(host: Host, names: list[str], _: dict[str, str]) -> Result:
    out, code = "", 0
    for name in names:
        unit = host.systemd.units.get(name)
        if unit is None:
            return Result(out, f"Unit {name} could not be found.\n", 4)
        out += f"* {name} - {unit.description}\n"
        out += f"   Loaded: loaded ({unit.enabled})\n   Active: {unit.active} ({unit.sub})\n"
        code = 0 if unit.active == "active" else 3
    return Result(out, code=code)


def _list_units(host: Host, names: list[str], options: dict[str, str]) -> Result:
    everything = "--all" in options or "-a" in options
    wanted_states = [each for each in options.get("--state", "").split(",") if each]
    shown = [
        f"{unit.name} loaded {unit.active} {unit.sub} {unit.description}"
        for unit in host.systemd.units.values()
        if (everything or unit.active != "inactive" or wanted_states)
        and (not names or any(_matches(unit.name, name) for name in names))
        and (not wanted_states or {unit.active, unit.sub} & set(wanted_states))
    ]
    return lines(*shown)


def _matches(name: str, pattern: str) -> bool:
    head, star, _ = pattern.partition("*")
    return name.startswith(head) if star else name == pattern


def _list_unit_files(host: Host, names: list[str], _: dict[str, str]) -> Result:
    units = [unit for unit in host.systemd.units.values() if not names or unit.name in names]
    return lines(*(f"{unit.name} {unit.enabled}" for unit in units))


def _reset_failed(host: Host, names: list[str], _: dict[str, str]) -> Result:
    for name in names:
        if not host.systemd.reset_failed(name):
            return fail(f"Failed to reset failed state of unit {name}: Unit {name} not loaded.")
    if not names:
        host.systemd.reset_failed()
    return Result()


def _nothing(host: Host, names: list[str], options: dict[str, str]) -> Result:
    return Result()


def _power(again: bool) -> Verb:
    def run(host: Host, names: list[str], options: dict[str, str]) -> Result:
        host.shut_down(again=again)
        return Result()

    return run


def _is_active(unit: Unit | None) -> str:
    return "inactive" if unit is None else unit.active


def _is_enabled(unit: Unit | None) -> str:
    return "not-found" if unit is None else unit.enabled


_VERBS: dict[str, Verb] = {
    "start": _start,
    "stop": _stop,
    "kill": _stop,
    "restart": _restart,
    "reload-or-restart": _restart,
    "enable": _enable("enabled", "enable"),
    "disable": _enable("disabled", "disable"),
    "mask": _enable("masked", "mask"),
    "unmask": _enable("enabled", "unmask"),
    "is-active": _query(_is_active, ("active",), 3),
    "is-failed": _query(_is_active, ("failed",), 1),
    "is-enabled": _query(_is_enabled, ("enabled", "static", "transient"), 1),
    "show": _show,
    "status": _status,
    "list-units": _list_units,
    "list-unit-files": _list_unit_files,
    "reset-failed": _reset_failed,
    "daemon-reload": _nothing,
    "reboot": _power(True),
    "poweroff": _power(False),
    "halt": _power(False),
}
_NEEDS_UNIT = {
    "start",
    "stop",
    "kill",
    "restart",
    "reload-or-restart",
    "is-active",
    "is-failed",
    "is-enabled",
    "status",
}
_NEEDS_UNIT |= {"enable", "disable", "mask", "unmask"}

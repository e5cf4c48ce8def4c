"""The sandbox's command line: ``python -m sandbox COMMAND [--name NAME]``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence

from sandbox import identities, lifecycle, node_faults, toolchain
from sandbox.cloud import faults as cloud_faults
from sandbox.errors import SandboxError
from sandbox.layout import Layout
from sandbox.processes import require_linux, tail
from sandbox.progress import Progress

EXIT = {lifecycle.UP: 0, lifecycle.UNHEALTHY: 1, lifecycle.DOWN: 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 an error, 2 wrong usage, 3 (status) not up, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        require_linux()
        return int(options.run(options))
    except SandboxError as error:
        return _failed(error)
    except OSError as error:
        problem = f"{error.strerror or error}: {error.filename or 'no file named'}."
        return _failed(SandboxError("this computer", problem, "Look at free space and permissions.", "SBX-SYSTEM"))
    except KeyboardInterrupt:
        print("interrupted: nothing is left running", file=sys.stderr)
        return 130


def _failed(error: SandboxError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 1


def _up(options: argparse.Namespace) -> int:
    layout = Layout.named(options.name)
    binaries = toolchain.ensure(Progress())
    info = lifecycle.up(layout, binaries, lambda line: _report(f"{layout.name}: {line}"), options.with_process)
    print(f"{layout.subject} is up. kubectl: {info['bin']}/kubectl --kubeconfig {info['kubeconfig']}")
    return 0


def _down(options: argparse.Namespace) -> int:
    layout = Layout.named(options.name)
    existed = lifecycle.down(layout, lambda line: _report(f"{layout.name}: {line}"))
    print(f"{layout.subject} is down" if existed else f"{layout.subject} wasn't up")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = lifecycle.status(Layout.named(options.name))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        where = f" at {found['server']}" if "server" in found else ""
        print(f"sandbox {found['name']!r} is {found['health']}{where}")
        for process, state in found["processes"].items():
            print(f"  {process:24} {state}")
        for problem in found["problems"]:
            print(f"  problem: {problem}")
    return EXIT[found["health"]]


def _build(options: argparse.Namespace) -> int:
    for name, path in toolchain.ensure(Progress()).items():
        print(f"{name:24} {path}")
    return 0


def _user(options: argparse.Namespace) -> int:
    print(identities.add_user(Layout.named(options.name), options.user, options.group or ["system:masters"]))
    return 0


def _fault(options: argparse.Namespace) -> int:
    at_cloud = options.target == "cloud"
    parser = argparse.ArgumentParser(prog=f"python -m sandbox fault {options.target}")
    parser.add_argument("--name", default=options.name, help="which sandbox")
    (cloud_faults if at_cloud else node_faults).add_arguments(parser)
    words = parser.parse_args(options.words)
    layout = Layout.named(words.name)
    layout.info()
    try:
        print(cloud_faults.apply(layout.root, words) if at_cloud else node_faults.apply(layout, options.target, words))
    except ValueError as refused:
        how = f"See: python -m sandbox fault {options.target} --help"
        raise SandboxError("fault", f"{refused}.", how, "SBX-FAULT") from None
    return 0


def _env(options: argparse.Namespace) -> int:
    """Lines for ``eval``: kubectl, helm and the Alibaba Cloud SDK then mean this sandbox."""
    info = Layout.named(options.name).info()
    print(f"export KUBECONFIG={shlex.quote(info['kubeconfig'])}")
    print(f"export KUBECACHEDIR={shlex.quote(info['state'] + '/kube-cache')}")
    print(f"export ALIBABA_CLOUD_CREDENTIALS_FILE={shlex.quote(info['credentials_file'])}")
    print(f"export PATH={shlex.quote(info['bin'])}:$PATH")
    return 0


def _logs(options: argparse.Namespace) -> int:
    layout = Layout.named(options.name)
    logs = sorted(layout.logs.glob("*.log")) if layout.exists() else []
    if options.process:
        logs = [log for log in logs if log.stem == options.process]
    if not logs:
        raise SandboxError(
            layout.subject,
            "has no such log.",
            f"See what runs: python -m sandbox status --name {layout.name}",
            "SBX-LOG",
        )
    for log in logs:
        print(f"==> {log} <==\n{tail(log, options.lines)}")
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        each = commands.add_parser(name, help=text, description=text)
        each.set_defaults(run=run)
        return each

    command("build", _build, "build what is missing of the binaries and print where they are")
    named = [
        start := command("up", _up, "start a sandbox; builds the binaries at the first time"),
        command("down", _down, "stop a sandbox and remove its files"),
        state := command("status", _status, "how a sandbox is: exit status 0 up, 1 unhealthy, 3 not up"),
        user := command(
            "user", _user, "make a user; prints its kubeconfig. Its AccessKey is a profile in `credentials`"
        ),
        fault := command("fault", _fault, "make something fail on a node, or in the cloud endpoint"),
        command("env", _env, 'print shell exports: eval "$(python -m sandbox env)"'),
        logs := command("logs", _logs, "print the last lines of a process's log, or of all"),
    ]
    for each in named:
        each.add_argument("--name", default="default", help="which sandbox (default: default)")
    start.add_argument("--with-process", type=int, metavar="PID", help="go down by itself when this process ends")
    state.add_argument("--json", action="store_true", help="print sandbox.json and the health as JSON")
    user.add_argument("user", metavar="USER")
    user.add_argument("--group", action="append", metavar="GROUP", help="repeatable; default: system:masters")
    fault.add_argument("target", metavar="NODE|cloud")
    fault.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="fault NODE --help, fault cloud --help")
    logs.add_argument("process", nargs="?", metavar="PROCESS")
    logs.add_argument("--lines", type=int, default=20)
    return parser


if __name__ == "__main__":
    sys.exit(main())

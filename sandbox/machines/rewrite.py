"""Where namespaces aren't permitted: absolute paths of a node are rewritten, in command lines and in shell scripts.

The second best: a program that makes up a path by itself sees this computer's files. docs/sandbox-machines.md says what
that means. Its `bash` and `sh` are `run_shell`: it rewrites the script for the real shell.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
_OWN = (
    r"proc/(?:cgpu_km|driver/nvidia|modules|sys/kernel/random/boot_id|sys/kernel/osrelease)|usr/local|dev/nvidia\w*|"
    r"boot|etc|home|opt|root|run|srv|tmp|var"
)
_SHELLS = ("bash", "sh")
_SHELL = """#!{python} -IS
import runpy, sys
runpy.run_path({path!r})["run_shell"]({name!r}, sys.argv[1:])
"""
_TREE, _BIN = "SANDBOX_TREE", "SANDBOX_BIN"


def text(source: str, tree: str, programs: str) -> str:
    """A command line or script with the node's absolute paths replaced by those below `tree`, programs by stand-ins.

    What has been rewritten already stays as it is.
    """
    names = "|".join(sorted(path.name for path in (HERE / "bin").iterdir()))
    begin = rf"(?<![\w./-])(?!{re.escape(tree)}/|{re.escape(programs)}/)"
    source = re.sub(rf"{begin}/(?:usr/)?s?bin/({names}|bash|sh)(?![\w-])", rf"{programs}/\1", source)
    return re.sub(rf"{begin}/({_OWN})(?![\w-])", rf"{tree}/\1", source)


def command(
    tree: Path, argv: Sequence[str], folder: str, variables: MutableMapping[str, str], scratch: Path, *, host: bool
) -> list[str]:
    """The command that runs `argv` on a node; what it needs is put into `variables`."""
    programs = _programs(scratch, host=host)
    variables.update(
        {
            _TREE: os.fspath(tree),
            _BIN: os.fspath(programs),
            "SANDBOX_PYTHON": sys.executable,
            "SANDBOX_LIB": "",
            "SANDBOX_CLIENT": os.fspath(HERE / "client.py"),
            "SANDBOX_RUN": os.fspath(scratch),
            "PATH": f"{programs}:{variables['PATH']}",
        }
    )
    rewritten = [text(word, os.fspath(tree), os.fspath(programs)) for word in argv]
    if rewritten[0].startswith(f"{tree}/") and _is_script(rewritten[0]):
        rewritten.insert(0, os.fspath(programs / "bash"))
    where = folder if folder.startswith(os.fspath(tree)) else text(folder, os.fspath(tree), "")
    return ["env", "-C", where, *rewritten]


def _programs(scratch: Path, *, host: bool) -> Path:
    """The folder of stand-ins, with the shells that rewrite."""
    folder = scratch / ("host-bin" if host else "pod-bin")
    if not folder.exists():
        folder.mkdir()
        for program in (HERE / folder.name.replace("host-", "")).iterdir():
            (folder / program.name).symlink_to(program)
        for name in _SHELLS:
            shell = folder / name
            shell.write_text(_SHELL.format(python=sys.executable, path=os.fspath(HERE / "rewrite.py"), name=name))
            shell.chmod(0o755)
    return folder


def _is_script(path: str) -> bool:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False


def run_shell(name: str, arguments: list[str]) -> None:
    """Become the real shell, with a rewritten script."""
    tree, programs = os.environ[_TREE], os.environ[_BIN]
    words, index = list(arguments), 0
    while index < len(words) and words[index].startswith("-") and words[index] != "-s":
        takes_command = "c" in words[index] and not words[index].startswith("--")
        index += 1
        if takes_command:
            break
    else:
        takes_command = False
    if takes_command:
        words[index] = text(words[index], tree, programs)
    elif index < len(words) and words[index] != "-s":
        words[index] = _rewritten_file(words[index], tree, programs)
    elif not os.isatty(0):
        words[index:] = [_rewritten(sys.stdin.read(), tree, programs), *words[index + 1 :]]
    real = shutil.which(name, path="/usr/bin:/bin") or f"/bin/{name}"
    os.execv(real, [name, *words])  # noqa: S606


def _rewritten_file(path: str, tree: str, programs: str) -> str:
    try:
        return _rewritten(Path(path).read_text(), tree, programs)
    except OSError:
        return path  # the shell says what is wrong with it


def _rewritten(source: str, tree: str, programs: str) -> str:
    done = text(source, tree, programs)
    folder = Path(programs).with_name("scripts")
    folder.mkdir(exist_ok=True)
    target = folder / hashlib.sha256(done.encode()).hexdigest()[:16]
    target.write_text(done)
    return os.fspath(target)

"""A machine's root folder, put together from its file tree and this computer's programs. Needs own namespaces."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox.machines.isolation import bind, mount, unmount

# What a machine has of its own; everything else under / comes from this computer, read only.
OWN = ("boot", "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var", "usr/local")
SHARED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SHARED_IN_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
HERE = Path(__file__).resolve().parent
BIN, POD_BIN, CLIENT = HERE / "bin", HERE / "pod-bin", HERE / "client.py"
PLACE = "/.sandbox"
# Where this Python stands below its own prefix, so that it runs wherever the prefix is shown.
_PYTHON = Path(os.path.realpath(sys.executable)).relative_to(os.path.realpath(sys.base_prefix))


def environment() -> dict[str, str]:
    """Where the stand-ins find their interpreter, themselves and the process `machines`, inside a jail."""
    return {
        "SANDBOX_PYTHON": f"{PLACE}/python/{_PYTHON}",
        "SANDBOX_LIB": f"{PLACE}/python/lib",
        "SANDBOX_CLIENT": f"{PLACE}/client.py",
        "SANDBOX_RUN": f"{PLACE}/socket",
    }


def build(jail: Path, tree: Path, socket_folder: Path, proc: Path, *, host: bool) -> None:
    """Assemble a root folder at `jail`: the host's, or a container's, which sees the host's devices and /proc alone."""
    jail.mkdir(parents=True, exist_ok=True)
    mount("tmpfs", os.fspath(jail), "tmpfs", options="size=1m,mode=755")
    (jail / "usr").mkdir()
    bind(Path("/usr"), jail / "usr", read_only=True)
    for name in OWN:
        if not (jail / name).is_dir():
            (jail / name).mkdir()
        if host or name in ("dev", "proc"):
            bind(tree / name, jail / name)
    if not host:
        mount("tmpfs", os.fspath(jail / "usr/local"), "tmpfs", options="size=1m,mode=755")
    for name in SHARED:
        _share(Path("/") / name, jail / name)
    for name in SHARED_IN_ETC:
        source, target = Path("/etc") / name, jail / "etc" / name
        if source.exists():
            target.mkdir(exist_ok=True) if source.is_dir() else target.touch()
            bind(source, target, read_only=True)
    for name in DEVICES:
        (jail / "dev" / name).touch()
        bind(Path("/dev") / name, jail / "dev" / name)
    _furnish(jail, socket_folder, proc)
    if host:
        _cover(jail)


def remove(jail: Path) -> None:
    """Take a jail apart; one that was never built is fine.

    Raises RuntimeError when it is still there: whoever deletes the folder then would delete what is shown in it.
    """
    unmount(os.fspath(jail))
    if jail.is_mount():
        raise RuntimeError(f"{jail} can't be unmounted")


def _share(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(os.readlink(source))  # noqa: PTH115 (as it is written, not as it resolves)
    elif source.is_dir():
        target.mkdir()
        bind(source, target, read_only=True)


def _furnish(jail: Path, socket_folder: Path, proc: Path) -> None:
    place = jail / PLACE.lstrip("/")
    shown = {"python": Path(sys.base_prefix), "bin": BIN, "pod-bin": POD_BIN, "socket": socket_folder, "proc": proc}
    for name, source in shown.items():
        (place / name).mkdir(parents=True)
        bind(source, place / name, read_only=name not in ("socket", "proc"))
    (place / "client.py").touch()
    bind(CLIENT, place / "client.py", read_only=True)


def _cover(jail: Path) -> None:
    """A host's own programs are hidden behind the stand-ins, so that /usr/sbin/reboot is the machine's reboot too."""
    programs = {stand_in.name: stand_in.resolve() for stand_in in BIN.iterdir()}
    covered = set()
    for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for name, stand_in in programs.items():
            program = Path(os.path.realpath(f"{folder}/{name}"))
            # A stand-in goes by the name it is called by; a program that plays many other parts is left alone.
            if program.is_file() and program not in covered and program.name in {*programs, "kmod"}:
                covered.add(program)
                bind(stand_in, jail / program.relative_to("/"))

"""Own mount and process namespaces for the machines, where this computer permits them.

Inside, each machine gets a root folder made of its own file tree and this computer's programs (read only), so that any
command behaves with the absolute paths of a node, and nothing that runs there sees this computer's processes. The
kernel takes mounts and processes away with the process that made them, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

_NEWNS, _NEWUSER, _NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """mount(2); raises OSError."""
    words = [None if word is None else word.encode() for word in (source, target, kind, options)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def unmount(target: str) -> None:
    """Take a mount and all below it away; one that isn't there is fine."""
    _libc.umount2(target.encode(), _MNT_DETACH)


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show a file or folder at another place too."""
    mount(os.fspath(source), os.fspath(target), flags=MS_BIND | MS_REC)
    if read_only:
        # Inside a user namespace some flags of a mount are locked, and a remount that leaves them out is refused.
        with suppress(PermissionError):
            mount("none", os.fspath(target), flags=MS_BIND | MS_REMOUNT | MS_RDONLY | _kept_flags(target))


def _kept_flags(target: Path) -> int:
    found = os.statvfs(target).f_flag
    return found & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME)


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter(proc: Path) -> bool:
    """Go on as a child in own namespaces, with their process table mounted at `proc`; False when that isn't permitted.

    The calling process stays behind as a watchman: it passes SIGTERM on and ends with the child's status. Call it
    before the first thread is started.
    """
    user, group = os.geteuid(), os.getegid()
    flags = _NEWNS | _NEWPID | (_NEWUSER if user else 0)
    if not _permitted(flags):
        return False
    _unshare(flags, user, group)
    if child := os.fork():
        _watch(child)
    die_with_parent()
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    proc.mkdir(parents=True, exist_ok=True)
    mount("proc", os.fspath(proc), "proc", MS_NOSUID | MS_NODEV)
    # The first process of a namespace inherits every orphan, so it does nothing else.
    if server := os.fork():
        _reap(server)
    return True


def _permitted(flags: int) -> bool:
    """Try it in a child, all of it: some computers permit the namespaces and not the mounts in them."""
    user, group = os.geteuid(), os.getegid()
    if trial := os.fork():
        return os.waitpid(trial, 0)[1] == 0
    try:
        _unshare(flags, user, group)
        if inner := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    except OSError:
        os._exit(1)
    os._exit(0)


def _unshare(flags: int, user: int, group: int) -> None:
    if _libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    if flags & _NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _watch(child: int) -> None:
    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _reap(server: int) -> None:
    """Wait for every child until the server ends; what is left then dies with the namespace."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(server, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    while True:
        pid, status = os.wait()
        if pid == server:
            sys.stdout.flush()
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)

"""The folder of a sandbox: locks that survive a removal, writes that are whole, a removal that removes only that."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sandbox import layout
from sandbox.errors import SandboxError
from sandbox.layout import Layout, locked, write_private


def test_a_held_lock_is_refused_at_once_or_waited_for(tmp_path: Path) -> None:
    order = []
    with locked(tmp_path / "lock", wait=False) as first:
        assert first
        with locked(tmp_path / "lock", wait=False) as second:
            assert not second

        def wait() -> None:
            with locked(tmp_path / "lock", wait=True):
                order.append("waiter")

        waiter = threading.Thread(target=wait)
        waiter.start()
        order.append("holder")
    waiter.join(10)
    assert order == ["holder", "waiter"]


def test_who_waited_for_a_lock_that_was_removed_takes_the_new_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    taken = threading.Event()
    release = threading.Event()

    def wait() -> None:
        with locked(lock, wait=True):
            taken.set()
            release.wait(10)

    with locked(lock, wait=True):
        waiter = threading.Thread(target=wait)
        waiter.start()
        lock.unlink()
    assert taken.wait(10)
    with locked(lock, wait=False) as free:
        assert not free, "the waiter holds the lock that others would take now"
    release.set()
    waiter.join(10)


def test_a_private_file_replaces_the_old_one_and_has_no_moment_in_which_others_may_read_it(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert before == os.umask(before)
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_what_is_linked_from_a_sandbox_is_not_removed_with_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    found = Layout(tmp_path / "one")
    found.create()
    (found.nodes / "link").symlink_to(outside)
    found.remove()
    assert not found.root.exists()
    assert (outside / "kept").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is denied to root")
def test_folders_that_deny_everything_are_removed_all_the_same(tmp_path: Path) -> None:
    found = Layout(tmp_path / "one")
    found.create()
    (found.nodes / "closed" / "deep").mkdir(parents=True)
    (found.nodes / "closed").chmod(0)
    found.remove()
    assert not found.root.exists()


def test_a_folder_with_a_mount_in_it_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Layout(tmp_path / "one")
    found.create()
    monkeypatch.setattr(layout, "_mounts_below", lambda folder: [f"{folder}/nodes/x/usr"])
    with pytest.raises(SandboxError) as refused:
        found.remove()
    assert refused.value.code == "SBX-MOUNT"
    assert found.root.exists()


def test_mounts_are_seen_in_the_folder_that_holds_them() -> None:
    points = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    point = next(point for point in points if point.parent != Path("/"))
    assert str(point) in layout._mounts_below(point.parent)
    assert str(point) not in layout._mounts_below(point / "deeper")

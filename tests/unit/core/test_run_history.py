"""What is kept of the last runs, and that it never outgrows a ConfigMap."""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.ack.ai_suite.plugins.module_utils.core import run_history
from ansible_collections.ack.ai_suite.plugins.module_utils.core.run_history import Entry, NodeEntry

NOW = datetime(2026, 5, 4, 2, tzinfo=UTC)
NEW = Entry(
    "20260504t020000z-a-1", "a", "1.5.20", NOW, nodes={"n": NodeEntry("done", "1.5.20", steps={"cordoned": 1.5})}
)


def test_a_run_writes_its_own_key_only() -> None:
    change = run_history.change({"20260503t020000z-a-1": "{}", NEW.run: "old"}, NEW)
    assert list(change) == [NEW.run]
    assert '"steps":{"cordoned":1.5}' in str(change[NEW.run])


def test_the_oldest_runs_go_when_there_are_too_many() -> None:
    data = {f"202605{day:02}t000000z-a-1": "{}" for day in range(1, 26)}
    gone = [key for key, text in run_history.change(data, NEW).items() if text is None]
    assert sorted(gone) == [f"202605{day:02}t000000z-a-1" for day in range(1, 7)]


def test_the_oldest_runs_go_when_they_are_too_large() -> None:
    data = {f"2026050{day}t000000z-a-1": "x" * 400_000 for day in (1, 2, 3)}
    gone = [key for key, text in run_history.change(data, NEW).items() if text is None]
    assert gone == ["20260501t000000z-a-1"]

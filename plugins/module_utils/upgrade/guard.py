"""Whether this process may still write: signals, the parent, the Leases. Asked before every write and every line.

``ansible-playbook`` runs the plug-in in a forked worker with a session of its own. SIGKILL of the parent, or a lost
terminal, does not stop it, and Ansible's handlers for SIGTERM and SIGINT end it at once: so the worker looks after
itself. Nothing depends on cleaning up; a run that ends in order only spares its successor the wait for the Lease.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.lease import Lease
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SLICE = 0.1


class Guard:
    """Use it as a context: own signal handlers are installed, and the former ones come back afterwards."""

    def __init__(self) -> None:
        parent = multiprocessing.parent_process()
        self._parent = parent.pid if parent is not None else os.getppid()
        self._signal = 0
        self._before: dict[int, Any] = {}
        self._renewing = threading.Lock()
        self.leases: list[Lease] = []

    def __enter__(self) -> Guard:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number  # repeated ones change nothing

    @property
    def orphaned(self) -> bool:
        """Whether the parent is gone: nobody reads what we print, and a new run may be on its way."""
        return os.getppid() != self._parent

    def stopped(self) -> str:
        """Why the process must end, or ""."""
        if self._signal:
            return f"it got {signal.Signals(self._signal).name}"
        return "its ansible-playbook is gone" if self.orphaned else ""

    def check(self) -> None:
        """Raises AckError: UPG-INTERRUPTED, or UPG-LOST when another run has taken a Lease."""
        reason = self.stopped()
        if reason:
            raise AckError(
                "node_upgrade",
                f"this run was interrupted: {reason}. Each node keeps the state that it is in.",
                "Run again: it goes on where this run was.",
                "UPG-INTERRUPTED",
            )
        with self._renewing:  # evictions are sent side by side
            for lease in self.leases:
                lease.renew()

    def sleep(self, seconds: float) -> None:
        """Wait, and notice within a tenth of a second that the process must end."""
        until = clock.monotonic() + seconds
        self.check()
        while (left := until - clock.monotonic()) > 0:
            clock.sleep(min(left, _SLICE))
            self.check()

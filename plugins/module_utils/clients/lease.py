"""A Lease as a lock: only one run works on a thing at a time, and a run that was killed is known to be dead.

The clock of another machine is never trusted: a holder is dead when its Lease did not change for its whole length
while we watched (as in client-go's leader election). Nothing renews it behind its owner's back: an owner that hangs
loses it, and one that was frozen learns so by ``renew`` before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Hold

SECONDS = 15
_LONG_DEAD = 300  # no two clocks of people who can reach one API server differ by so much


class Lease:
    """One Lease, by name. ``holder`` is who we are: it must differ between runs.

    ``seconds`` is its length (a whole number for the API), ``noun`` the prefix of the error codes (``CMP-BUSY``).
    """

    def __init__(
        self, kube: Kube, namespace: str, name: str, holder: str, *, seconds: int = SECONDS, noun: str = "CMP"
    ) -> None:
        self._kube = kube
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.name = name
        self._holder = holder
        self._seconds = seconds
        self._codes = (f"{noun}-BUSY", f"{noun}-LOST")
        self._held: dict[str, Any] | None = None
        self._renewed = (0.0, clock.now())

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self.name}"

    def hold(self) -> Hold | None:
        """Who holds it, or held it when killed."""
        return _hold(self._kube.find(self._path, dict))

    def acquire(self, timeout: float, pause: Callable[[float], None] = clock.sleep, heir_of: str = "") -> None:
        """Take it: when it is free, or when its holder is dead.

        ``heir_of`` names a holder that is known to be dead. Raises AckError (``…-BUSY``) after ``timeout`` seconds.
        """
        deadline = clock.monotonic() + timeout
        seen, since = "", clock.monotonic()
        while True:
            found = self._kube.find(self._path, dict)
            version = found["metadata"]["resourceVersion"] if found else ""
            if version != seen:
                seen, since = version, clock.monotonic()
            hold = _hold(found)
            if hold is None or hold.holder in (self._holder, heir_of) or self._dead(hold, clock.monotonic() - since):
                if self._take(found):
                    return
                continue
            if clock.monotonic() >= deadline:
                raise AckError(
                    f"Lease {self.name}",
                    f"{hold.holder} is at work since {hold.acquired.isoformat(timespec='seconds')}.",
                    "Wait for that run to end, then run again.",
                    self._codes[0],
                )
            pause(min(0.5, self._seconds / 8))

    @staticmethod
    def _dead(hold: Hold, unchanged: float) -> bool:
        return unchanged > hold.seconds or (clock.now() - hold.renewed).total_seconds() > hold.seconds + _LONG_DEAD

    def renew(self) -> None:
        """Say that we live, when a third of the length has passed.

        A renewal succeeds only if nobody took the Lease meanwhile. Raises AckError (``…-LOST``) when somebody did, or
        when it could not be renewed for its whole length.
        """
        age = self._age()
        if self._held is None or age < self._seconds / 3:
            return
        moment = clock.monotonic(), clock.now()
        try:
            self._keep(self._replace(self._held), moment)
        except KubeError as problem:
            taken = problem.status in (404, 409)
            if not taken and age < self._seconds:
                return  # the API is away for a moment; the Lease is still ours until it runs out
            self._held = None
            told = "another run took it" if taken else f"it could not be renewed for {age:.0f} s"
            raise AckError(
                f"Lease {self.name}", f"{told}.", "Run again to see what is left to do.", self._codes[1]
            ) from None

    def _age(self) -> float:
        """Seconds since it was renewed, by the clock that saw more of them: one stands still while a laptop sleeps."""
        monotonic, wall = self._renewed
        return max(clock.monotonic() - monotonic, (clock.now() - wall).total_seconds())

    def _replace(self, held: dict[str, Any]) -> dict[str, Any]:
        spec = {**held["spec"], "renewTime": _micro(clock.now())}
        try:
            return self._kube.replace(self._path, {**held, "spec": spec})
        except KubeError as problem:
            # Our last renewal may have been written though its answer was lost.
            current = self._kube.find(self._path, dict) if problem.status == 409 else None
            if current is None or current["spec"].get("holderIdentity") != self._holder:
                raise
            return self._kube.replace(self._path, {**current, "spec": spec})

    def release(self) -> None:
        """Give it back; what cannot be given back runs out by itself, and another run's is left alone."""
        held, self._held = self._held, None
        if held is None:
            return
        meta = held["metadata"]
        exactly = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        try:
            self._kube.delete(self._path, {"preconditions": exactly})
        except KubeError as problem:
            if problem.status != 409:
                raise

    def _take(self, found: dict[str, Any] | None) -> bool:
        moment = clock.monotonic(), clock.now()
        written = _micro(moment[1])
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": self._seconds, "acquireTime": written,
                "renewTime": written}  # fmt: skip
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}, "spec": spec}
        try:
            if found is None:
                self._keep(self._kube.create(self._folder, body), moment)
            else:
                self._keep(self._kube.replace(self._path, {**found, "spec": spec}), moment)
        except KubeError as problem:
            if problem.status in (404, 409):
                return False  # somebody was faster
            raise
        return True

    def _keep(self, answer: dict[str, Any], moment: tuple[float, datetime]) -> None:
        """``moment`` is from before the request: the other side's clock started at some time after it."""
        self._held, self._renewed = answer, moment


def _micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _hold(found: dict[str, Any] | None) -> Hold | None:
    spec = (found or {}).get("spec") or {}
    if not spec.get("holderIdentity"):
        return None
    renewed = datetime.fromisoformat(spec.get("renewTime") or spec["acquireTime"])
    return Hold(
        spec["holderIdentity"],
        datetime.fromisoformat(spec.get("acquireTime") or spec["renewTime"]),
        renewed,
        int(spec.get("leaseDurationSeconds") or SECONDS),
    )

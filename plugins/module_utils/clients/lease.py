"""A Lease as a lock: only one run works on a thing at a time, and a run that was killed is known to be dead.

The clock of another machine is never trusted: a holder is dead when its Lease did not change for its whole length
while we watched (as in client-go's leader election).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Hold

SECONDS = 15
_LONG_DEAD = 300  # no two clocks of people who can reach one API server differ by so much


class Lease:
    """One Lease, by name. ``holder`` is who we are: it must differ between runs."""

    def __init__(self, kube: Kube, namespace: str, name: str, holder: str) -> None:
        self._kube = kube
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._holder = holder
        self._held: dict[str, Any] | None = None
        self._renewed = 0.0

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._name}"

    def hold(self) -> Hold | None:
        """Who holds it, or held it when killed."""
        return _hold(self._kube.find(self._path, dict))

    def acquire(self, timeout: float) -> None:
        """Take it when it is free or its holder is dead. Raises AckError (CMP-BUSY) after ``timeout`` seconds."""
        deadline = clock.monotonic() + timeout
        seen, since = "", clock.monotonic()
        while True:
            found = self._kube.find(self._path, dict)
            version = found["metadata"]["resourceVersion"] if found else ""
            if version != seen:
                seen, since = version, clock.monotonic()
            hold = _hold(found)
            if hold is None or self._dead(hold, clock.monotonic() - since):
                if self._take(found):
                    return
                continue
            if clock.monotonic() >= deadline:
                raise AckError(
                    f"Lease {self._name}",
                    f"{hold.holder} is at work since {hold.acquired.isoformat(timespec='seconds')}.",
                    "Wait for that run to end, then run again.",
                    "CMP-BUSY",
                )
            clock.sleep(0.5)

    @staticmethod
    def _dead(hold: Hold, unchanged: float) -> bool:
        return unchanged > hold.seconds or (clock.now() - hold.renewed).total_seconds() > _LONG_DEAD

    def renew(self) -> None:
        """Say that we live, when a third of the length has passed. Raises AckError (CMP-LOST) when it is not ours."""
        if clock.monotonic() - self._renewed < SECONDS / 3 or self._held is None:
            return
        self._held["spec"]["renewTime"] = _micro(clock.now())
        try:
            self._keep(self._kube.replace(self._path, self._held))
        except KubeError as problem:
            if problem.status not in (404, 409):
                return  # the API is away for a moment; the Lease is still ours until it runs out
            raise AckError(
                f"Lease {self._name}", "another run took it.", "Run again to see what is left to do.", "CMP-LOST"
            ) from None

    def release(self) -> None:
        """Give it back; what cannot be given back runs out by itself."""
        held, self._held = self._held, None
        if held is None:
            return
        meta = held["metadata"]
        try:
            self._kube.delete(
                self._path, {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
            )
        except KubeError as problem:
            if problem.status not in (0, 409, *range(500, 600)):
                raise

    def _take(self, found: dict[str, Any] | None) -> bool:
        moment = _micro(clock.now())
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": SECONDS, "acquireTime": moment,
                "renewTime": moment}  # fmt: skip
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}, "spec": spec}
        try:
            if found is None:
                self._keep(self._kube.create(self._folder, body))
            else:
                self._keep(self._kube.replace(self._path, {**found, "spec": spec}))
        except KubeError as problem:
            if problem.status in (404, 409):
                return False  # somebody was faster
            raise
        return True

    def _keep(self, answer: dict[str, Any]) -> None:
        self._held, self._renewed = answer, clock.monotonic()


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

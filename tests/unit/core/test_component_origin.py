"""How a component was installed: told by its marks, stated by the operator, or unknown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component_origin import origin
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Chart, Release, Revision

OURS = Chart("ack-ai-installer", "0.1.0", annotations={helm_release.ORIGIN: helm_release.OUR_ORIGIN})
VENDOR = Chart("ack-ai-installer", "1.12.6")


def release(chart: Chart, state: str = "deployed") -> Release:
    return Release("ack-ai-installer", "kube-system", chart, (Revision(1, state, datetime(2026, 5, 1, tzinfo=UTC)),))


@pytest.mark.parametrize(
    ("held", "stated", "expected"),
    [
        (None, "", "none"),
        (None, "suite", "none"),
        (release(VENDOR, "uninstalled"), "", "none"),
        (release(OURS), "", "ack.ai_suite"),
        (release(OURS), "suite", "ack.ai_suite"),
        (release(VENDOR), "", "unknown"),
        (release(VENDOR), "something", "unknown"),
        (release(VENDOR), "suite", "suite"),
        (release(VENDOR, "pending-upgrade"), "app_catalog", "app_catalog"),
    ],
)
def test_the_origin_is_told_by_marks_or_stated_and_never_guessed(
    held: Release | None, stated: str, expected: str
) -> None:
    found = origin(held, stated)
    assert found.origin == expected
    assert found.why
    assert found.upgrade


def test_what_came_from_app_catalog_is_never_to_be_uninstalled() -> None:
    assert "only the suite can install it again" in origin(release(VENDOR), "app_catalog").upgrade

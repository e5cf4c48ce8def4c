"""Our reading of YAML against Helm's own: what a template's ``fromYaml`` makes of a scalar is what ours makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import manifests

SCALARS = [
    "08", "010", "0o17", "0x1f", "-0b11", "+5", "1_000", "0", "-1", "1e3", "1e+06", "1.5", ".5", "1.5.20", "1.20",
    "1.5e", "12:30", "2024-05-31", "y", "n", "Yes", "no", "ON", "off", "TRUE", "yep", "~", "null",
    "'5'", "=", "v1", "1.0",
]  # fmt: skip
TEMPLATE = """
{{ range .Values.scalars }}
# {{ . | b64enc }} {{ (printf "v: %s" . | fromYaml).v | toJson }}
{{ end }}
"""


def test_every_scalar_is_read_as_helm_reads_it(helm: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: scalars\nversion: 0.1.0\n")
    (tmp_path / "templates" / "all.yaml").write_text(TEMPLATE)
    text = helm("template", "scalars", str(tmp_path), "--values=-", stdin=json.dumps({"scalars": SCALARS}))
    told = [json.loads(line.split(" ", 2)[2]) for line in text.splitlines() if line.startswith("# ")
            and "Source" not in line]  # fmt: skip
    assert len(told) == len(SCALARS)
    ours = [manifests.one(f"v: {scalar}")["v"] for scalar in SCALARS]
    differing = {scalar: pair for scalar, *pair in zip(SCALARS, told, ours, strict=True) if pair[0] != pair[1]}
    assert differing == {}
    assert [type(value) is bool for value in told] == [type(value) is bool for value in ours]

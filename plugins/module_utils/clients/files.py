"""Files of this computer: snapshots to read, reports to write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError


def read(path: str) -> bytes:
    """The bytes of a file. Raises AckError (SNP-UNREADABLE)."""
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise AckError(
            f"file {path}",
            f"it cannot be read: {problem.strerror}.",
            "Give a file that you may read.",
            "SNP-UNREADABLE",
        ) from None


def write(path: str, text: str) -> None:
    """Write a file whole or not at all; its folder is made. Raises AckError (SNP-UNWRITABLE)."""
    target = Path(path)
    written = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(written).chmod(0o644)
        Path(written).replace(target)
    except OSError as problem:
        if written:
            Path(written).unlink(missing_ok=True)
        raise AckError(
            f"file {path}", f"it cannot be written: {problem.strerror}.", "Give a path that you may write.",
            "SNP-UNWRITABLE",
        ) from None  # fmt: skip

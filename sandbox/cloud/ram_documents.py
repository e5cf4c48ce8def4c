"""What RAM checks of a policy document (pure). Source: "Policy structure and syntax" of the RAM documentation."""

from __future__ import annotations

import json
from typing import Any

from sandbox.cloud.errors import CloudError, error

LONGEST = 6144
_STATEMENT_KEYS = {"Effect", "Action", "NotAction", "Resource", "NotResource", "Condition", "Sid"}


def check_document(text: str) -> None:
    """Raises InvalidParameter.PolicyDocument.Length or MalformedPolicyDocument."""
    if not 1 <= len(text) <= LONGEST:
        raise error("InvalidParameter.PolicyDocument.Length")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as broken:
        raise _malformed(f"The policy document is not JSON: {broken.msg}") from None
    if not isinstance(document, dict) or document.get("Version") != "1":
        raise _malformed('The policy document must be an object with Version "1"')
    statements = document.get("Statement")
    if not isinstance(statements, list) or not statements:
        raise _malformed("Statement must be a list with one entry or more")
    if strange := sorted(set(document) - {"Version", "Statement"}):
        raise _malformed(f"Unknown element {strange[0]}")
    for number, statement in enumerate(statements, 1):
        _check_statement(number, statement)


def _check_statement(number: int, statement: Any) -> None:
    if not isinstance(statement, dict):
        raise _malformed(f"Statement {number} must be an object")
    if strange := sorted(set(statement) - _STATEMENT_KEYS):
        raise _malformed(f"Statement {number}: unknown element {strange[0]}")
    if statement.get("Effect") not in ("Allow", "Deny"):
        raise _malformed(f"Statement {number}: Effect must be Allow or Deny")
    for one, other in (("Action", "NotAction"), ("Resource", "NotResource")):
        if (one in statement) == (other in statement):
            raise _malformed(f"Statement {number}: one of {one} and {other} is required")
        if not _texts(statement.get(one, statement.get(other))):
            raise _malformed(f"Statement {number}: {one} must be a string or a list of strings")
    if not isinstance(statement.get("Condition", {}), dict):
        raise _malformed(f"Statement {number}: Condition must be an object")


def _texts(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(each, str) and each for each in values)


def _malformed(why: str) -> CloudError:
    return error("MalformedPolicyDocument", why=why)

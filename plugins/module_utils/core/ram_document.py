"""RAM policy documents by their meaning: read, compared, joined, and asked what they grant.

The order of statements, actions and resources, a text instead of a list of one, duplicates, white space and URL
encoding mean nothing. Effect, NotAction, NotResource, Condition and the case of letters do: RAM's documents do not
promise that case is ignored, so ``ecs:describeInstances`` is not taken for ``ecs:DescribeInstances``.
Source: RAM "Policy elements", "Policy structure and syntax".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError

LONGEST = 6144  # characters, RAM CreatePolicy
_KEYS = {"Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
_ACTION = re.compile(r"\*|[A-Za-z0-9*?-]+:[A-Za-z0-9*?:/_.-]+")


class Statement(msgspec.Struct, frozen=True):
    """One statement. ``condition`` is canonical JSON, "" for none; ``but`` marks NotAction and NotResource."""

    effect: str
    actions: frozenset[str]
    resources: frozenset[str]
    actions_but: bool = False
    resources_but: bool = False
    condition: str = ""

    @property
    def allows(self) -> bool:
        return self.effect == "Allow"

    def plain(self) -> dict[str, Any]:
        """As RAM writes it, in one fixed order."""
        told: dict[str, Any] = {
            "Effect": self.effect,
            "NotAction" if self.actions_but else "Action": sorted(self.actions),
            "NotResource" if self.resources_but else "Resource": _short(self.resources),
        }
        return {**told, "Condition": json.loads(self.condition)} if self.condition else told


def _short(names: frozenset[str]) -> list[str] | str:
    return sorted(names) if len(names) > 1 else next(iter(names))


Document = tuple[Statement, ...]


def parse(told: str | Mapping[str, Any], subject: str) -> Document:
    """A document as RAM or an inventory gives it: JSON text (URL-encoded or not) or the object itself.

    Raises AckError (RAM-DOCUMENT) that says what is wrong with it.
    """
    document = _decoded(told, subject) if isinstance(told, str) else told
    if not isinstance(document, Mapping) or set(document) - {"Version", "Statement"}:
        raise _malformed(subject, "a document has the keys Version and Statement and no others")
    if document.get("Version") != "1":
        raise _malformed(subject, f'Version is {document.get("Version")!r}; RAM knows the text "1" alone')
    statements = document.get("Statement")
    statements = [statements] if isinstance(statements, Mapping) else statements
    if not isinstance(statements, list) or not statements:
        raise _malformed(subject, "Statement is no list of statements")
    return tuple(_statement(each, f"{subject}, statement {number}") for number, each in enumerate(statements, 1))


def text(document: Document) -> str:
    """The document to send: compact, and always the same for the same statements."""
    return json.dumps(plain(document), separators=(",", ":"))


def plain(document: Document) -> dict[str, Any]:
    return {"Version": "1", "Statement": [statement.plain() for statement in document]}


def same(one: Document, other: Document) -> bool:
    """Whether two documents mean the same."""
    return _atoms(one) == _atoms(other)


def joined(have: Document, want: Document, *, ours: bool) -> Document:
    """``have`` with what ``want`` grants beside it: nothing that stood there is taken away.

    What is covered already is not added. In a policy that is ours, a statement that a wanted one contains whole is
    left out, so that lists do not pile up as they grow.
    """
    missing = tuple(statement for statement in want if not _covered(statement, have))
    if not missing:
        return have
    kept = (each for each in have if not (ours and any(_contains(new, each) for new in missing)))
    return (*kept, *missing)


def _covered(wanted: Statement, have: Document) -> bool:
    if not wanted.allows or wanted.actions_but or wanted.resources_but or wanted.condition:
        return _atoms((wanted,)) <= _atoms(have)
    return all(
        any(_grants(each, action, resource) for each in have)
        for action in wanted.actions
        for resource in wanted.resources
    )


def _contains(new: Statement, old: Statement) -> bool:
    return _atoms((old,)) <= _atoms((new,))


def _atoms(document: Iterable[Statement]) -> set[tuple[Any, ...]]:
    """A statement means each of its actions on each of its resources; a Not... list means something only as a whole."""
    return {
        (each.effect, each.actions_but, actions, each.resources_but, resources, each.condition)
        for each in document
        for actions in ([each.actions] if each.actions_but else each.actions)
        for resources in ([each.resources] if each.resources_but else each.resources)
    }


# --- what documents grant ---


def why_not(action: str, documents: Mapping[str, Document]) -> str:
    """Why a role with these policies may not do an action on all resources; "" when it may.

    Conditions are never guessed: one that stands on an Allow grants nothing here, one on a Deny denies.
    """
    for name, document in documents.items():
        if any(not each.allows and _denies(each, action) for each in document):
            return f"denied by {name}"
    if any(_grants(each, action, "*") for document in documents.values() for each in document):
        return ""
    partly = [name for name, document in documents.items() if any(_touches(each, action) for each in document)]
    return f"granted by {', '.join(partly)} only for some resources or under a condition" if partly else "not granted"


def beyond(document: Document, listed: Iterable[str]) -> Iterator[str]:
    """The action patterns that a document allows and that no entry of the list covers."""
    known = list(listed)
    for statement in document:
        if statement.allows and statement.actions_but:
            yield f"everything but {', '.join(sorted(statement.actions))}"
        elif statement.allows:
            yield from (each for each in sorted(statement.actions) if not any(matches(one, each) for one in known))


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of RAM (``*`` any text, ``?`` one character) covers a name, which may be a pattern itself."""
    form = "".join({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern)
    return re.fullmatch(form, name, re.DOTALL) is not None


def _overlaps(one: str, other: str) -> bool:
    return matches(one, other) or matches(other, one)


def _grants(statement: Statement, action: str, resource: str) -> bool:
    """Certainly, and for the whole of the resource."""
    if not statement.allows or statement.condition or statement.resources_but:
        return False
    if not any(matches(pattern, resource) for pattern in statement.resources):
        return False
    if statement.actions_but:
        return not any(_overlaps(pattern, action) for pattern in statement.actions)
    return any(matches(pattern, action) for pattern in statement.actions)


def _touches(statement: Statement, action: str) -> bool:
    if not statement.allows:
        return False
    found = any(matches(pattern, action) for pattern in statement.actions)
    return not found if statement.actions_but else found


def _denies(statement: Statement, action: str) -> bool:
    """Possibly, and for any resource: an unsure Deny counts as one."""
    if statement.actions_but:
        return not any(matches(pattern, action) for pattern in statement.actions)
    return any(_overlaps(pattern, action) for pattern in statement.actions)


# --- reading ---


def _decoded(told: str, subject: str) -> Any:
    for candidate in (told, unquote(told)):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    raise _malformed(subject, "it is no JSON")


def _statement(told: Any, subject: str) -> Statement:
    if not isinstance(told, Mapping) or set(told) - _KEYS:
        raise _malformed(subject, f"a statement has the keys {', '.join(sorted(_KEYS))} and no others")
    if told.get("Effect") not in ("Allow", "Deny"):
        raise _malformed(subject, f"Effect is {told.get('Effect')!r}; it must be Allow or Deny")
    actions, actions_but = _one_of(told, "Action", subject)
    resources, resources_but = _one_of(told, "Resource", subject)
    wrong = sorted(action for action in actions if not _ACTION.fullmatch(action))
    if wrong:
        raise _malformed(subject, f"{', '.join(wrong)}: an action is written service:Operation")
    condition = told.get("Condition")
    if condition is not None and not isinstance(condition, Mapping):
        raise _malformed(subject, "Condition is no object")
    canonical = json.dumps(_sorted(condition), sort_keys=True) if condition else ""
    return Statement(told["Effect"], actions, resources, actions_but, resources_but, canonical)


def _one_of(told: Mapping[str, Any], name: str, subject: str) -> tuple[frozenset[str], bool]:
    """The names under ``name`` or ``Not<name>``, of which exactly one must stand there."""
    both = [key for key in (name, f"Not{name}") if key in told]
    if len(both) != 1:
        raise _malformed(subject, f"it needs either {name} or Not{name}")
    names = told[both[0]]
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise _malformed(subject, f"{both[0]} is no text and no list of texts")
    return frozenset(names), both[0] != name


def _sorted(value: Any) -> Any:
    """A condition with its values in one order: a text is a list of one, duplicates do not count."""
    if isinstance(value, Mapping):
        return {key: _sorted(each) for key, each in value.items()}
    values = value if isinstance(value, list) else [value]
    return sorted({each if isinstance(each, str) else json.dumps(each) for each in values})


def _malformed(subject: str, why: str) -> AckError:
    return AckError(subject, f"{why}.", "Correct the document; nothing was changed.", "RAM-DOCUMENT")

"""The page `docs/reference/python.md`, made from the clients themselves."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Required, get_args, get_origin, get_type_hints

from staffetta import client, errors
from staffetta.client.messages import Message

HEAD = """\
# Python

This page is made from the clients (`python -m staffetta.client.reference docs/reference`). They come with the bare
install and are typed; [guides/handing-in.md](../guides/handing-in.md#python) shows them at work.

```python
from staffetta import AsyncClient, Attachment, Client
```

Both clients say the same by the same names; those of `AsyncClient` are awaited. A call whose answer was lost is made
again under the same idempotency key, so that nothing is lost or doubled.
"""
_METHODS = ("send", "send_batch", "get", "cancel", "close")
_ANSWERS = ("Receipt", "Email", "Recipient", "HistoryEntry", "Attempt")
_RAISED = (
    errors.PayloadError, errors.Conflict, errors.KeyReused, errors.StillRunning, errors.MoveNotAllowed, errors.NotFound,
    errors.NoAnswer, errors.ApiError, errors.SettingsError,
)  # fmt: skip


def reference() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for made in (client.Client, client.AsyncClient):
        yield f"## {made.__name__}\n"
        yield f"`{_signature(made.__name__, made.__init__)}`\n"
        yield f"{_prose(made)}\n"
    yield "### Calls\n"
    for name in _METHODS:
        method = getattr(client.Client, name)
        yield f"`{_signature(name, method)}`\n"
        yield f"{_prose(method)}\n"
    yield "## Message\n"
    yield f"{_prose(Message)}\nThe rules of each field stand in [http.md](http.md#payload).\n"
    yield from _table(Message)
    yield "## Attachment\n"
    yield f"{_prose(client.Attachment)}\n"
    yield from _table(client.Attachment)
    yield f"`{_signature('Attachment.read', client.Attachment.read)}`: {_prose(client.Attachment.read)}\n"
    yield "## Answers\n"
    yield "Frozen values. Fields of later releases are skipped by older clients.\n"
    for name in _ANSWERS:
        yield f"### {name}\n"
        yield from _table(getattr(client, name))
    yield "## Errors\n"
    yield (
        "All are in `staffetta.errors`; `StaffettaError` is above them all. `PayloadError.problems` and\n"
        "`SettingsError.problems` are pairs of a field's name and what is wrong with it.\n"
    )
    yield "| error | means |\n|---|---|"
    for error in _RAISED:
        yield f"| `{error.__name__}` | {_prose(error)} |"


def _prose(thing: Any) -> str:
    """A docstring with what it says of errors in lines of their own."""
    text = " ".join(inspect.cleandoc(thing.__doc__ or "").split())
    said, *raised = re.split(r" ?:raises (?=\w)", text)
    lines = [*([said] if said else []), *(f"- raises `{one.replace(':', '`:', 1)}" for one in raised)]
    wrapped = [line for one in lines for line in textwrap.wrap(one, 118, break_long_words=False)]
    return "\n".join([*wrapped[:1], *([""] if raised and said else []), *wrapped[1:]])


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function, eval_str=False)
    kept = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    bare = found.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    text = re.sub(r": '([^']*)'", r": \1", str(bare))
    gives = (
        "" if found.return_annotation in ("None", inspect.Signature.empty) else f" -> {found.return_annotation}"
    )
    return f"{name}{text}{gives}"


def _table(shape: type) -> Iterator[str]:
    yield "| field | type |\n|---|---|"
    for name, kind in get_type_hints(shape, include_extras=True).items():
        must = get_origin(kind) is Required
        if not name.startswith("_"):
            yield f"| `{name}` | `{_kind(get_args(kind)[0] if must else kind)}`{', required' if must else ''} |"
    yield ""


def _kind(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", ()) else str(kind)
    return re.sub(
        r"\b(?:typing|collections\.abc|staffetta\.client\.\w+|uuid|datetime(?=\.[dt]))\.", "", text
    ).replace("|", "\\|")


if __name__ == "__main__":
    import sys
    from pathlib import Path

    (Path(sys.argv[1]) / "python.md").write_text(reference(), encoding="utf-8")

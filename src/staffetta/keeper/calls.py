"""The contracts as messages: every call has a number, a form for its arguments and one for its answer.

All of it is read off the contracts' own signatures, so that a new call needs no line here.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from staffetta import errors
from staffetta.errors import FieldProblem, PayloadError, StaffettaError
from staffetta.mail.message import Claim, DeadLetter, Email, Value
from staffetta.mail.operators import Page
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

FIRST_CALL = 16
"""Kinds of entries below this are no calls (see `line.py`)."""
ITEMS: dict[str, type[Value]] = {"emails": Email, "dead_letters": DeadLetter}
"""What a page holds; the contract leaves it open."""

encode = msgspec.msgpack.Encoder().encode


class Trouble(Value, frozen=True, kw_only=True, array_like=True):
    """An exception on its way: a name of `errors.py` and its words."""

    name: str
    text: str
    problems: tuple[tuple[str, str], ...] = ()
    """Where it names fields."""

    @classmethod
    def of(cls, error: BaseException) -> Trouble:
        problems = error.problems if isinstance(error, PayloadError) else ()
        return cls(name=type(error).__name__, text=str(error), problems=tuple(problems))

    def error(self) -> Exception:
        known = getattr(errors, self.name, None)
        if self.problems:
            return PayloadError([FieldProblem(*one) for one in self.problems])
        if isinstance(known, type) and issubclass(known, StaffettaError):
            return known(self.text)
        if self.name == "ValueError":
            return ValueError(self.text)
        return StaffettaError(f"the keeper met {self.name}: {self.text}")


read_trouble = msgspec.msgpack.Decoder(Trouble).decode


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a contract."""

    kind: int
    owner: Literal["store", "queue"]
    name: str
    arguments: Callable[..., Any]
    """Binds a call's arguments as the contract names them."""
    positional: int
    keywords: tuple[str, ...]
    carries_claim: bool
    read_arguments: Callable[[Any], Any]
    read_answer: Callable[[Any], Any]
    pack: Callable[[Any], Any] | None
    """An answer as it travels; None: as it is."""
    unpack: Callable[[Any], Any] | None
    each: bool
    """It takes several, and each has its own result."""

    def make(self, owner: Any, arguments: Any) -> Any:
        """The call itself, on a real store or queue."""
        values = msgspec.structs.astuple(arguments)
        named = dict(zip(self.keywords, values[self.positional :], strict=True))
        return getattr(owner, self.name)(*values[: self.positional], **named)


def _calls(contract: type, owner: Literal["store", "queue"], first: int) -> list[Call]:
    found = [one for one in vars(contract).items() if inspect.iscoroutinefunction(one[1])]
    return [_call(kind, owner, name, made) for kind, (name, made) in enumerate(found, first)]


def _call(kind: int, owner: Literal["store", "queue"], name: str, made: Any) -> Call:
    hints = typing.get_type_hints(made)
    told = hints.pop("return")
    fields: list[Any] = []
    keywords: list[str] = []
    for parameter in list(inspect.signature(made).parameters.values())[1:]:
        hint = hints[parameter.name]
        given = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hint, *given))
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append(parameter.name)
    # It takes in order what the call takes by name too: whoever calls was checked against the contract.
    arguments = msgspec.defstruct(f"{owner}_{name}", fields, array_like=True)
    wire, pack, unpack = _form(name, told)
    return Call(
        kind=kind, owner=owner, name=name, arguments=arguments, positional=len(fields) - len(keywords),
        keywords=tuple(keywords), carries_claim=any(one[1] is Claim for one in fields),
        read_arguments=msgspec.msgpack.Decoder(arguments).decode,
        read_answer=msgspec.msgpack.Decoder(wire).decode, pack=pack, unpack=unpack,
        each=pack is _pack_each,
    )  # fmt: skip


def _form(name: str, told: Any) -> tuple[Any, Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """How an answer travels: its type on the way, into it, and back."""
    if told is Page:
        item = ITEMS[name]
        return tuple[tuple[item, ...], str | None], _pack_page, _unpack_page  # type: ignore[valid-type]  # made of what is looked up
    of = typing.get_args(told)
    among = typing.get_args(of[0]) if len(of) == 1 and isinstance(of[0], types.UnionType) else ()
    if Exception in among:
        (other,) = (one for one in among if one is not Exception)
        return list[tuple[other | None, Trouble | None]], _pack_each, _unpack_each  # type: ignore[valid-type]  # as above
    return told, None, None


def _pack_page(page: Page) -> Any:
    return page.items, page.cursor


def _unpack_page(told: Any) -> Page:
    items, cursor = told
    return Page(items=items, cursor=cursor)


def _pack_each(results: Any) -> Any:
    return [(None, Trouble.of(one)) if isinstance(one, Exception) else (one, None) for one in results]


def _unpack_each(told: Any) -> list[Any]:
    return [value if trouble is None else trouble.error() for value, trouble in told]


STORE_CALLS = _calls(Store, "store", FIRST_CALL)
QUEUE_CALLS = _calls(Queue, "queue", FIRST_CALL + len(STORE_CALLS))
CALLS: dict[int, Call] = {call.kind: call for call in (*STORE_CALLS, *QUEUE_CALLS)}

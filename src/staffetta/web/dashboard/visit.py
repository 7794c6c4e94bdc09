"""One visit to a page: who came, what was asked for, and the page's row in the table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote

from staffetta.errors import FieldProblem
from staffetta.mail.keys import Role, allows
from staffetta.mail.message import Millis, Value
from staffetta.mail.operators import Filter
from staffetta.web import fields
from staffetta.web.asked import Answer
from staffetta.web.auth import Caller
from staffetta.web.cursors import Cursors
from staffetta.web.fields import Field
from staffetta.web.parts import Parts
from staffetta.web.problems import Problem, wrong_query

QUERY_BYTES_MAX = 8_192


class Visit:
    """A request whose page and visitor are known; of a POST the form was read and its token checked."""

    __slots__ = (
        "address",
        "caller",
        "cursors",
        "form",
        "id",
        "now",
        "page",
        "parts",
        "query",
        "signed_in",
        "token",
    )

    def __init__(
        self,
        *,
        page: Page,
        parts: Parts,
        cursors: Cursors,
        caller: Caller,
        signed_in: bool,
        id: str,
        query: bytes,
        token: str,
        address: str,
        form: Mapping[str, Sequence[str]],
    ) -> None:
        self.page = page
        self.parts = parts
        self.cursors = cursors
        self.caller = caller
        self.signed_in = signed_in
        """By a key; False where this machine is answered without one."""
        self.id = id
        self.query = query
        self.token = token
        """What every form of this visitor must carry."""
        self.address = address
        """Where the visitor comes from."""
        self.form = form
        self.now: Millis = parts.clock()

    @property
    def company_id(self) -> str | None:
        """The company that the visitor's key is bound to."""
        return self.caller.company_id

    @property
    def may_operate(self) -> bool:
        return allows(self.caller.role, "operate")

    def asked(self) -> dict[str, str]:
        """The query's words; of one that stands more than once the last. Empty ones are as good as none."""
        try:
            pairs = parse_qsl(
                self.query.decode("ascii"), errors="strict", max_num_fields=fields.QUERY_FIELDS_MAX
            )
        except ValueError:
            raise wrong_query([FieldProblem("query", "percent-encoded UTF-8")]) from None
        return {name: value.strip() for name, value in pairs if value.strip()}

    def said(self, name: str) -> str:
        """A form's field; empty where it is missing."""
        values = self.form.get(name, ())
        return values[-1].strip() if values else ""

    def narrowed(self, words: Mapping[str, str], known: Sequence[Field]) -> Filter:
        """The filter that words ask for, within what the visitor may see.

        :raises Problem: naming every wrong one; or another company was asked for.
        """
        values: dict[str, Any] = {}
        problems = []
        for field in known:
            word = words.get(field.name)
            if not word:
                continue
            try:
                values[field.name] = field.read(word.split(",") if field.name == "status" else word)
            except ValueError as error:
                problems.append(FieldProblem(field.name, f"must be {error}"))
        if problems:
            raise wrong_query(problems)
        if self.company_id is not None:
            if values.get("company_id") not in (None, self.company_id):
                raise Problem("not-allowed", f"this key is bound to the company {self.company_id}")
            values["company_id"] = self.company_id
        return fields.as_filter(values)


Handler: TypeAlias = Callable[[Visit], Awaitable[Answer]]


class Page(Value, frozen=True, kw_only=True):
    """One row of the dashboard in the table of routes."""

    method: str
    path: str
    handler: Handler
    role: Role | None = "read"
    """None: open to everybody."""
    whole: bool = False
    """Speaks of every company: shut to keys that are bound to one."""


def address(path: str, words: Mapping[str, str | None]) -> str:
    """A link with those words that say something."""
    said = "&".join(f"{name}={quote(value, safe='')}" for name, value in words.items() if value)
    return f"{path}?{said}" if said else path

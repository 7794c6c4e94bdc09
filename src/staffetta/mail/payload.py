"""What a client may hand in (the payload of section 4), checked: every wrong field is named at once.

One way for all: the usual payload meets only the checks of the fields it has. Checking looks at nothing but the
payload itself; whether an attachment's file exists is found out when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from staffetta.mail import strict_json, wishes
from staffetta.mail.addresses import AddressError, mailbox
from staffetta.mail.attached import Attachment, read_attachments
from staffetta.mail.custom import custom_headers
from staffetta.mail.headers import Mailbox, control_in
from staffetta.mail.identity import is_uuid
from staffetta.mail.message import NO_OPTIONS, Millis, Options, Value
from staffetta.mail.problems import Problems, said

RECIPIENTS_MAX = 50
COPIES_MAX = 5
SUBJECT_MAX = 998
COMPANY_MAX = 64
DEFAULT_COMPANY = "default"


class Limits(Value, frozen=True, kw_only=True):
    """How much is taken (`limits.*` of the settings)."""

    body_bytes: int = 10 * 1024 * 1024
    """HTML and text together."""
    message_bytes: int = 25 * 1024 * 1024
    """All attachments together."""


LIMITS = Limits()


class Payload(Value, frozen=True, kw_only=True):
    """A payload that was found right."""

    id: str | None = None
    company_id: str = DEFAULT_COMPANY
    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...] = ()
    bcc: tuple[Mailbox, ...] = ()
    reply_to: tuple[Mailbox, ...] = ()
    subject: str
    body_text: str | None = None
    body_html: str | None = None
    attachments: tuple[Attachment, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    priority: int = 5
    send_at: Millis = 0
    """0: at once."""
    options: Options = NO_OPTIONS

    @property
    def recipients(self) -> tuple[str, ...]:
        """The envelope's: everybody once, in the order given."""
        if len(self.to) == 1 and not self.cc and not self.bcc:
            return (self.to[0].address,)
        known: dict[tuple[str, str], str] = {}
        for person in (*self.to, *self.cc, *self.bcc):
            local, _, domain = person.address.rpartition("@")
            known.setdefault((local, domain.lower()), person.address)
        return tuple(known.values())


def read(raw: bytes | Mapping[str, Any], *, company_id: str | None = None, limits: Limits = LIMITS) -> Payload:
    """The payload that a JSON text (or a mapping, from Python) stands for.

    `company_id` binds it: a payload that names another company is refused.
    :raises PayloadError: every wrong field is named.
    """
    fields = strict_json.loads(raw) if isinstance(raw, bytes) else raw
    if not isinstance(fields, Mapping):
        strict_json.refuse(f"must be a JSON object, not {said(fields)}")
    problems = Problems()
    found = _check(fields, company_id, limits, problems)
    if problems:
        raise problems.error()
    return Payload(**found)


def _check(
    fields: Mapping[str, Any], company_id: str | None, limits: Limits, problems: Problems
) -> dict[str, Any]:
    """Everything that every payload has is checked in place; what few have, by the table `_RARE`."""
    found: dict[str, Any] = {
        "company_id": _company(fields, company_id, problems),
        "sender": _sender(fields, problems),
        "subject": _subject(fields, problems),
    }
    found["to"] = _required_people("to", fields, problems)
    _bodies(fields, limits, found, problems)
    rare = fields.keys() - _EVERYDAY
    if rare:
        # In the order of the table, so that problems are told in the same order each time.
        for name, check in _RARE.items():
            if name in rare:
                found[name] = check(name, fields[name], problems)
        for name in sorted(map(str, rare - FIELDS)):
            problems.add(name, "is not a field of a payload")
        if "attachments" in rare:
            found["attachments"] = read_attachments(fields["attachments"], limits.message_bytes, problems)
        if not rare.isdisjoint(_WISHES):
            found["send_at"], found["options"] = wishes.read(fields, problems)
        _together(found, problems)
    return found


def _together(found: dict[str, Any], problems: Problems) -> None:
    """What no field can tell alone."""
    count = sum(len(found.get(name) or ()) for name in ("to", "cc", "bcc"))
    if count > RECIPIENTS_MAX:
        problems.add("to", f"with cc and bcc {count} are named, at most {RECIPIENTS_MAX} are taken")
    found["headers"] = found.pop("custom_headers", ())
    if found.get("reply_to") and any(name.lower() == "reply-to" for name, _ in found["headers"]):
        problems.add("custom_headers.Reply-To", "is given by reply_to already; leave one of them out")


# ------------------------------------------------------------ everyday fields


def _company(fields: Mapping[str, Any], bound: str | None, problems: Problems) -> str:
    named = fields.get("company_id", bound or DEFAULT_COMPANY)
    if not isinstance(named, str):
        problems.add("company_id", f"must be text, not {said(named)}")
        return DEFAULT_COMPANY
    if not 1 <= len(named) <= COMPANY_MAX:
        problems.add("company_id", f"must have 1 to {COMPANY_MAX} characters, has {len(named)}")
    elif control := control_in(named):
        problems.add("company_id", f"holds a control character ({control})")
    elif named[0] == " " or named[-1] == " ":
        # Databases compare padded text in different ways: one company could read another's e-mails.
        problems.add("company_id", "begins or ends with a space")
    elif bound is not None and named != bound:
        problems.add("company_id", "is not the company that this key is bound to; leave it out")
    return named


def _sender(fields: Mapping[str, Any], problems: Problems) -> Mailbox | None:
    text = fields.get("from")
    if text is None and "from" not in fields:
        problems.add("from", "is required")
        return None
    return _person("from", text, problems)


def _person(name: str, text: Any, problems: Problems) -> Mailbox | None:
    if not isinstance(text, str):
        problems.add(name, f"must be an address as text, not {said(text)}")
        return None
    try:
        return mailbox(text)
    except AddressError as error:
        problems.add(name, str(error))
        return None


def _required_people(name: str, fields: Mapping[str, Any], problems: Problems) -> tuple[Mailbox, ...]:
    value = fields.get(name)
    if value is None and name not in fields:
        problems.add(name, "is required")
        return ()
    if isinstance(value, str):
        person = _person(name, value, problems)
        return (person,) if person is not None else ()
    if value == []:
        problems.add(name, "names nobody; give at least one address")
        return ()
    return _people(name, value, RECIPIENTS_MAX, problems)


def _people(name: str, value: Any, most: int, problems: Problems) -> tuple[Mailbox, ...]:
    if isinstance(value, str):
        person = _person(name, value, problems)
        return (person,) if person is not None else ()
    if not isinstance(value, list | tuple):
        problems.add(name, f"must be an address or a list of addresses, not {said(value)}")
        return ()
    if len(value) > most:
        problems.add(name, f"names {len(value)} addresses, at most {most} are taken")
        return ()
    found = (_person(f"{name}[{index}]", text, problems) for index, text in enumerate(value))
    return tuple(person for person in found if person is not None)


def _subject(fields: Mapping[str, Any], problems: Problems) -> str:
    subject = fields.get("subject")
    if not isinstance(subject, str):
        missing = "subject" not in fields
        problems.add("subject", "is required" if missing else f"must be text, not {said(subject)}")
        return ""
    if not 1 <= len(subject) <= SUBJECT_MAX:
        problems.add("subject", f"must have 1 to {SUBJECT_MAX} characters, has {len(subject)}")
    elif control := control_in(subject):
        problems.add("subject", f"holds a line break or another control character ({control})")
    return subject


def _bodies(fields: Mapping[str, Any], limits: Limits, found: dict[str, Any], problems: Problems) -> None:
    size = 0
    for name in ("body_text", "body_html"):
        if name in fields:
            body = fields[name]
            if not isinstance(body, str):
                problems.add(name, f"must be text, not {said(body)}")
                continue
            found[name] = body
            try:
                size += len(body) if body.isascii() else len(body.encode("utf-8"))
            except UnicodeEncodeError:
                problems.add(name, "has half of a surrogate pair, which is no character")
    if "body_text" not in fields and "body_html" not in fields:
        problems.add("body_text", "is missing, and so is body_html; give at least one of them")
    elif size > limits.body_bytes:
        problems.add(
            "body_html" if "body_html" in fields else "body_text",
            f"makes {size} bytes of body, at most {limits.body_bytes} are taken (limits.body_bytes)",
        )


# ------------------------------------------------------------ the other fields


def _id(name: str, value: Any, problems: Problems) -> str | None:
    if isinstance(value, str) and is_uuid(value):
        return value
    problems.add(name, "must be a UUID of 36 characters in lower case")
    return None


def _few_people(name: str, value: Any, problems: Problems) -> tuple[Mailbox, ...]:
    return _people(name, value, COPIES_MAX, problems)


def _some_people(name: str, value: Any, problems: Problems) -> tuple[Mailbox, ...]:
    return _people(name, value, RECIPIENTS_MAX, problems)


def _priority(name: str, value: Any, problems: Problems) -> int:
    if type(value) is int and 1 <= value <= 10:
        return value
    problems.add(name, "must be a whole number from 1 (first) to 10")
    return 5


_RARE: dict[str, Callable[[str, Any, Problems], Any]] = {
    "id": _id,
    "reply_to": _some_people,
    "cc": _few_people,
    "bcc": _few_people,
    "priority": _priority,
    "custom_headers": custom_headers,
}
_EVERYDAY = frozenset({"company_id", "from", "to", "subject", "body_text", "body_html"})
_WISHES = wishes.FIELDS
FIELDS = _EVERYDAY | _RARE.keys() | _WISHES | {"attachments"}
"""Every field that a payload may have."""

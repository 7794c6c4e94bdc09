"""Payloads: what is taken, and every wrong field named at once, in words for whoever wrote the program."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staffetta.errors import PayloadError
from staffetta.mail import payload
from staffetta.mail.attached import Attached, AttachedFile
from staffetta.mail.message import RetryLimits
from staffetta.mail.payload import FIELDS, Limits, Payload

BASE: dict[str, Any] = {
    "from": "shop@example.com",
    "to": "ada@example.org",
    "subject": "Hello",
    "body_text": "Hi",
}


def read(**fields: Any) -> Payload:
    return payload.read({**BASE, **fields})


def problems(fields: Any, **more: Any) -> dict[str, str]:
    """The wrong fields of a payload, or of its JSON text, each with what is wrong."""
    with pytest.raises(PayloadError) as refused:
        payload.read(fields, **more)
    return dict(refused.value.problems)


def wrong(**fields: Any) -> dict[str, str]:
    return problems({**BASE, **fields})


# ------------------------------------------------------------------------------------------ what is taken


def test_the_least_there_must_be() -> None:
    found = read()

    assert ("default", "shop@example.com", ("ada@example.org",)) == (
        found.company_id, found.sender.address, found.recipients
    )  # fmt: skip
    assert (5, 0, ()) == (found.priority, found.send_at, found.attachments)


def test_everything_there_may_be() -> None:
    found = payload.read(
        json.dumps({
            "id": "01a1f587-6ac1-76b1-a0a5-71bb1360af7e", "company_id": "acme", "from": "Müller <m@example.com>",
            "to": ["Ada <a@example.org>", "b@example.org"], "cc": "c@example.org", "bcc": ["d@example.org"],
            "reply_to": ["r@example.com"], "subject": "Grüße", "body_text": "t", "body_html": "<p>",
            "attachments": ["in/a.pdf", {"path": "b.pdf", "name": "c.pdf"}, {"name": "d.txt", "content": "aGk="}],
            "custom_headers": {"X-A": "1"}, "priority": 1, "send_at": "2026-11-19T20:00:00+01:00",
            "expires_in": 60, "max_attempts": 2, "retry_delay": 1000, "max_retry_delay": 5000,
            "callback_url": "https://acme.example/x", "tags": ["a"], "metadata": {"a": [1]}, "in_doubt": "hold",
        }).encode()
    )  # fmt: skip

    assert ("a@example.org", "b@example.org", "c@example.org", "d@example.org") == found.recipients
    assert (
        AttachedFile(path="in/a.pdf", name="a.pdf"), AttachedFile(path="b.pdf", name="c.pdf"),
        Attached(name="d.txt", content=b"hi", type="text/plain"),
    ) == found.attachments  # fmt: skip
    assert 1_795_114_800_000 == found.send_at
    assert RetryLimits(max_attempts=2, retry_delay_ms=1000, max_retry_delay_ms=5000) == found.options.limits
    assert ("hold", 60, ("a",), {"a": [1]}) == (
        found.options.in_doubt, found.options.expires_in_seconds, found.options.tags, found.options.metadata
    )  # fmt: skip


def test_everybody_is_in_the_envelope_once() -> None:
    """Domains know no capital letters; local parts may."""
    found = read(to=["a@B.example", "A@b.example"], cc=["a@b.example"], bcc=["a@b.EXAMPLE", "x@y.example"])

    assert ("a@B.example", "A@b.example", "x@y.example") == found.recipients


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"subject": "x" * 998}, "subject"),
        ({"company_id": "c" * 64}, "company_id"),
        ({"company_id": "ü 用"}, "company_id"),
        ({"cc": [f"c{n}@example.org" for n in range(5)]}, "cc"),
        ({"to": [f"t{n}@example.org" for n in range(50)]}, "to"),
        ({"tags": ["t"] * 5}, "tags"),
        ({"metadata": {"a": "x" * 4_080}}, "metadata"),
        ({"priority": 10}, "priority"),
        ({"custom_headers": {"X-A": "x" * 8_192}}, "custom_headers"),
        ({"body_text": ""}, "body_text"),
    ],
)
def test_the_largest_is_still_taken(fields: dict[str, Any], field: str) -> None:
    assert read(**fields)


# ------------------------------------------------------------------------------------------ what is not


def test_every_wrong_field_is_named_at_once() -> None:
    """Whoever mends a program mends it once."""
    found = problems({"to": [], "subject": "", "priority": 0, "tags": 1, "colour": "red", "cc": ["x"] * 6})

    assert {"from", "to", "subject", "body_text", "priority", "tags", "colour", "cc"} == set(found)
    assert "is required" == found["from"]
    assert "is not a field of a payload" == found["colour"]


OTHER_KINDS: list[Any] = [None, True, 7, 7.5, "text", [], [None], [[]], {}, {"a": 1}]
TAKEN_KINDS: dict[str, tuple[type, ...]] = {
    "company_id": (str,), "subject": (str,), "body_text": (str,), "body_html": (str,), "attachments": (list, str),
    "custom_headers": (dict,), "tags": (list, str), "metadata": (dict,), "reply_to": (list,), "cc": (list,),
    "bcc": (list,), "expires_in": (int,), "max_attempts": (int,), "retry_delay": (int,), "max_retry_delay": (int,),
    "priority": (int,),
}  # fmt: skip
"""Kinds of value that a field may take: what is of another kind must be named."""


@pytest.mark.parametrize("value", OTHER_KINDS, ids=repr)
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_value_of_another_kind_is_named(field: str, value: Any) -> None:
    """Never coerced: `"5"` is no priority, `true` is no number, null is no absence."""
    if type(value) in TAKEN_KINDS.get(field, ()):
        return
    named = wrong(**{field: value})

    assert all(re.match(rf"{field}\b", name) for name in named), named


@pytest.mark.parametrize(
    ("field", "value", "name", "words"),
    [
        ("id", "01A1F587-6AC1-76B1-A0A5-71BB1360AF7E", "id", "lower case"),
        ("id", "1", "id", "UUID"),
        ("id", "01a1f5876ac176b1a0a571bb1360af7e", "id", "36 characters"),
        ("company_id", "", "company_id", "1 to 64"),
        ("company_id", "c" * 65, "company_id", "1 to 64"),
        ("company_id", " a", "company_id", "space"),
        ("company_id", "a\nb", "company_id", "control"),
        ("subject", "", "subject", "1 to 998"),
        ("subject", "x" * 999, "subject", "1 to 998"),
        ("subject", "a\nb", "subject", "line break"),
        ("from", "a@b.example, c@d.example", "from", "address"),
        ("to", "a" * 250 + "@b.example", "to", "octets"),
        ("to", ["a@b.example", "nobody"], "to[1]", "@-sign"),
        ("to", [f"t{n}@e.org" for n in range(51)], "to", "at most 50"),
        ("cc", [f"t{n}@e.org" for n in range(6)], "cc", "at most 5"),
        ("bcc", [f"t{n}@e.org" for n in range(6)], "bcc", "at most 5"),
        ("reply_to", "x\r\ny@z.example", "reply_to", "control"),
        ("custom_headers", {"X-A": 1}, "custom_headers.X-A", "text"),
        ("custom_headers", {"X-A": "a", "x-a": "b"}, "custom_headers.x-a", "twice"),
        ("custom_headers", {f"X-{n}": "" for n in range(101)}, "custom_headers", "at most 100"),
        ("priority", 11, "priority", "1 (first) to 10"),
        ("priority", 5.0, "priority", "whole"),
        ("send_at", "2026-11-19T20:00:00", "send_at", "offset"),
        ("send_at", "2026-13-19T20:00:00Z", "send_at", "offset"),
        ("send_at", "tomorrow", "send_at", "offset"),
        ("expires_in", 0, "expires_in", "seconds"),
        ("max_attempts", -1, "max_attempts", "whole number"),
        ("retry_delay", 2**31, "retry_delay", "milliseconds"),
        ("callback_url", "ftp://a.example/", "callback_url", "http"),
        ("callback_url", "http://user:pw@a.example/", "callback_url", "password"),
        ("callback_url", "https:///path", "callback_url", "host"),
        ("callback_url", "http://a.example/\nx", "callback_url", "characters"),
        ("callback_url", "http://[::1", "callback_url", "URL"),
        ("tags", ["t"] * 6, "tags", "at most 5"),
        ("tags", ["a\nb"], "tags[0]", "printable"),
        ("tags", [""], "tags[0]", "1 to"),
        ("metadata", {"a": "x" * 5_000}, "metadata", "4096"),
        ("in_doubt", "retry", "in_doubt", "resend"),
        ("attachments", [{}], "attachments[0].content", "required"),
        ("attachments", [{"name": "a"}], "attachments[0].content", "required"),
        ("attachments", [{"content": ""}], "attachments[0].name", "required"),
        ("attachments", [{"name": "a/b", "content": ""}], "attachments[0].name", "folders"),
        ("attachments", [{"name": "..", "content": ""}], "attachments[0].name", "folders"),
        ("attachments", [{"name": "a", "content": "not base64!"}], "attachments[0].content", "base64"),
        ("attachments", [{"name": "a", "content": "YQ"}], "attachments[0].content", "base64"),
        ("attachments", [{"name": "a", "content": "YQ==", "type": "x"}], "attachments[0].type", "media type"),
        (
            "attachments",
            [{"name": "a", "content": "", "type": "a/b\r\nX: y"}],
            "attachments[0].type",
            "media type",
        ),
        (
            "attachments",
            [{"name": "a", "content": "", "type": "message/rfc822"}],
            "attachments[0].type",
            "octet",
        ),
        ("attachments", [{"path": "a", "content": ""}], "attachments[0].content", "beside path"),
        ("attachments", [{"path": "a", "size": 1}], "attachments[0].size", "not a field"),
        ("attachments", [7], "attachments[0]", "path or an object"),
        ("attachments", ["a\0b"], "attachments[0]", "control"),
        ("attachments", ["a"] * 101, "attachments", "at most 100"),
    ],
)
def test_what_is_wrong_is_said(field: str, value: Any, name: str, words: str) -> None:
    named = wrong(**{field: value})

    assert name in named, named
    assert words in named[name]


def test_the_whole_may_not_name_more_than_fifty() -> None:
    named = wrong(to=[f"t{n}@e.org" for n in range(48)], cc=["a@e.org", "b@e.org"], bcc="c@e.org")

    assert ["to"] == list(named)
    assert "51" in named["to"]


def test_a_company_comes_from_the_key() -> None:
    """It may be left out, and nobody may name another."""
    assert "acme" == payload.read(BASE, company_id="acme").company_id
    assert "acme" == payload.read({**BASE, "company_id": "acme"}, company_id="acme").company_id
    assert {"company_id"} == set(problems({**BASE, "company_id": "bistro"}, company_id="acme"))


def test_bodies_are_bounded_together() -> None:
    limits = Limits(body_bytes=10)

    assert payload.read({**BASE, "body_text": "x" * 5, "body_html": "y" * 5}, limits=limits)
    assert {"body_html"} == set(problems({**BASE, "body_text": "x" * 6, "body_html": "y" * 5}, limits=limits))
    assert {"body_text"} == set(problems({**BASE, "body_text": "ü" * 6}, limits=limits)), "octets, not letters"


def test_attachments_are_bounded_together() -> None:
    limits = Limits(message_bytes=10)
    six = base64.b64encode(b"123456").decode()
    files = [{"name": "a", "content": six}, {"name": "b", "content": six}]

    assert payload.read({**BASE, "attachments": files[:1]}, limits=limits)
    assert "12 bytes together" in problems({**BASE, "attachments": files}, limits=limits)["attachments"]


def test_base64_in_lines_is_taken() -> None:
    """As many tools write it."""
    (found,) = read(attachments=[{"name": "a", "content": "aGVs\r\nbG8=\n"}]).attachments

    assert isinstance(found, Attached)
    assert b"hello" == found.content


def test_a_message_inside_a_message_goes_as_octets() -> None:
    """RFC 2046 lets message/rfc822 not be encoded, and unencoded nobody promises its lines."""
    (found,) = read(attachments=[{"name": "old.eml", "content": ""}]).attachments

    assert isinstance(found, Attached)
    assert "application/octet-stream" == found.type


# ------------------------------------------------------------------------------------------ JSON itself


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"null", "must be a JSON object"),
        (b"[]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"\xff", "UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999, "b": 01}', "not valid JSON"),
        (b'{"priority": ' + b"9" * 5_000 + b"}", "number"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"subject": "a\nb"}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1} {"b": 2}', "not valid JSON"),
    ],
    ids=range(16),
)
def test_what_is_no_json_of_one_meaning_is_refused(text: bytes, words: str) -> None:
    assert words in problems(text)["payload"]


def test_a_key_that_stands_twice_is_named() -> None:
    """Two readers would take two different ones: who is it really to?"""
    text = b'{"to": "a@b.example", "to": "c@d.example", "metadata": {"x": 1, "x": 2}}'

    assert {"to", "x"} == set(problems(text))


def test_half_a_surrogate_pair_is_named_by_its_field() -> None:
    """JSON can write what is no text."""
    for field in ("subject", "body_text", "company_id", "from"):
        fields = {**BASE, field: "\ud800"}
        assert field in problems(json.dumps(fields).encode()), field
    for field, value in (
        ("tags", ["\ud800"]),
        ("metadata", {"a": "\ud800"}),
        ("custom_headers", {"X-A": "\ud800"}),
    ):
        assert any(name.startswith(field) for name in problems(json.dumps({**BASE, field: value}).encode())), (
            field
        )


def test_a_hostile_field_name_is_shown_harmlessly() -> None:
    (name,) = wrong(**{"\x1b[2J" + "x" * 500: 1})

    assert name.isprintable()
    assert len(name) <= 81


def test_a_thousand_wrong_fields_are_not_all_told() -> None:
    named = wrong(**{f"x{n}": 1 for n in range(1_000)})

    assert len(named) == 101
    assert "900 more" in named["payload"]


# ------------------------------------------------------------------------------------------ by law

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80)
    | st.sampled_from(["a@b.example", "x <y@z.example>", "../x", "text/plain", "2026-01-01T00:00:00Z", "https://a.example"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=12) | st.sampled_from(["path", "name", "content", "type", "X-A"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None)
@given(fields=st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=10), ANYTHING, max_size=8))
def test_whatever_comes_is_taken_or_named(fields: dict[str, Any]) -> None:
    """Nothing a stranger sends ends in any other exception, and every problem tells its field."""
    for one in (fields, {**BASE, **fields}):
        named = [("some field", "is wrong")]
        try:
            payload.read(one)
        except PayloadError as error:
            named = list(error.problems)
        assert named
        assert all(field and problem for field, problem in named)


@settings(deadline=None)
@given(
    text=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_whatever_bytes_come_are_taken_or_named(text: bytes) -> None:
    with pytest.raises(PayloadError):
        payload.read(text)


@pytest.mark.parametrize(
    "hostile",
    [
        "a@" * 500,
        '"' + "\\" * 900 + "@b.example",
        "<" * 900,
        "(" * 990 + "a@b.example",
        "a" * 990 + "@",
        "=?" * 490,
        "=?utf-8?b?" + "A" * 900,
        " " * 990 + "a@b.example",
    ],
)
def test_no_address_takes_long_to_refuse(hostile: str) -> None:
    """Patterns are linear and texts bounded: a list of the worst costs no more than a list of the usual."""
    began = time.process_time()
    for _ in range(20):
        payload_problems = wrong(to=hostile, cc=hostile, subject=hostile * 2)
        assert "to" in payload_problems or payload_problems
    assert time.process_time() - began < 1.0, "20 times; the usual takes a hundredth of it"

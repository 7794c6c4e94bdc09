"""Message files become payloads that say the same; whatever else is in a file is refused in words."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from staffetta.errors import PayloadError
from staffetta.mail import payload
from staffetta.mail.attached import Attached
from staffetta.mail.compose import compose, message_id
from staffetta.mail.eml import payload_of
from staffetta.mail.headers import control_in
from staffetta.mail.payload import Payload

BASE: dict[str, Any] = {"from": "Müller <shop@example.com>", "to": ["Ada <ada@example.org>", "bob@example.org"]}
ID = "01a1f587-6ac1-76b1-a0a5-71bb1360af7e"
LINES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200)
TEXT = st.lists(LINES, min_size=1, max_size=5).map("\n".join)
SUBJECT = LINES.filter(lambda text: bool(text.strip()) and not control_in(text))


def message_of(read: Payload) -> bytes:
    files = [one for one in read.attachments if isinstance(one, Attached)]
    return compose(read, files, message_id=message_id(ID, read.sender.address), date_ms=0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(subject=SUBJECT, text=TEXT, html=TEXT, content=st.binary(max_size=300))
def test_a_message_of_ours_becomes_the_payload_it_was_made_of(
    subject: str, text: str, html: str, content: bytes
) -> None:
    """Out and in again: addresses, subject, bodies, headers and files are the same."""
    file = {"name": "ü.bin", "type": "application/x-any", "content": base64.b64encode(content).decode()}
    asked = {
        **BASE, "subject": subject, "body_text": text, "body_html": html, "attachments": [file], "cc": "c@example.org",
        "reply_to": "r@example.com", "custom_headers": {"X-A": "ü", "List-Unsubscribe": "<https://e.com/u>"},
    }  # fmt: skip
    first = payload.read(asked)
    again = payload.read(payload_of(message_of(first)))

    assert (first.sender, first.to, first.cc, first.reply_to) == (
        again.sender,
        again.to,
        again.cc,
        again.reply_to,
    )
    assert (first.subject, dict(first.headers)) == (again.subject, dict(again.headers))
    assert first.attachments == again.attachments
    assert [one and one.replace("\r\n", "\n") for one in (again.body_text, again.body_html)] == [text, html]


@settings(deadline=None)
@given(raw=st.binary(max_size=400))
@example(raw=b"From: a@b.example\r\nContent-Type: multipart/mixed; boundary=\r\n\r\n--\r\n\r\n----\r\n")
@example(raw=b"From: a@b.example\nContent-Type: text/plain; charset=no-such\n\nhi")
@example(raw=b"From: a@b.example\nContent-Transfer-Encoding: base64\n\n\xff\xff=")
@example(raw=b"From: =?utf-8?b?\nTo: <\nSubject: =?x?y?z?=\n\n")
@example(raw=b"From: a@b.example, c@d.example\nTo: group: x@y.example, z@y.example;\n\n")
@example(raw=b"From: a@b.example\nContent-Type: message/rfc822\n\n" * 3)
def test_whatever_is_in_a_file_is_taken_or_refused_in_words(raw: bytes) -> None:
    """The standard library's parser has its own troubles with hostile messages; none of them is ours to show."""
    for one in (raw, b"From: a@b.example\r\nTo: c@d.example\r\n" + raw):
        named = [("nothing", "was wrong")]
        try:
            payload.read(payload_of(one))
        except PayloadError as error:
            named = list(error.problems)
        assert named


@pytest.mark.parametrize("depth", [50, 3_000])
def test_parts_inside_parts_end_somewhere(depth: int) -> None:
    """Each level costs a hundred bytes of a file and a level of somebody's stack."""
    raw = b"From: a@b.example\nTo: c@d.example\nSubject: s\n"
    for level in range(depth):
        raw += b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (level, level)
    raw += b"Content-Type: text/plain\n\nhello\n"
    named: list[str] = []
    try:
        found = payload_of(raw)
    except PayloadError as error:
        named = [field for field, _ in error.problems]
    else:
        assert "hello" in str(found)

    assert named in ([], ["message"])

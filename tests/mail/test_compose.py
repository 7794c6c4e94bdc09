"""What is composed parses back to what was handed in, by the standard library's parser, and is whole on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from staffetta.errors import PayloadError
from staffetta.mail import payload
from staffetta.mail.attached import Attached
from staffetta.mail.compose import compose, date, message_id

NOW = 1_763_584_655_041
ID = "01a1f587-6ac1-76b1-a0a5-71bb1360af7e"
BASE: dict[str, Any] = {
    "from": "shop@example.com",
    "to": "ada@example.org",
    "subject": "Hello",
    "body_text": "Hi",
}
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def composed(**fields: Any) -> bytes:
    """The message of a payload with these fields beside the usual ones; None takes one away."""
    asked = {name: value for name, value in {**BASE, **fields}.items() if value is not None}
    read = payload.read(asked)
    attachments = [one for one in read.attachments if isinstance(one, Attached)]
    name = message_id(ID, read.sender.address)
    raw = compose(read, attachments, message_id=name, date_ms=NOW)
    assert raw == compose(read, attachments, message_id=name, date_ms=NOW), "every attempt sends the same bytes"
    _whole(raw)
    return raw


def _whole(raw: bytes) -> None:
    """RFC 5321: CRLF ends every line and stands nowhere else; no line over 998 octets."""
    assert raw.endswith(b"\r\n")
    assert raw.count(b"\r") == raw.count(b"\n") == raw.count(b"\r\n")
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert b"\0" not in raw


def parsed(raw: bytes) -> EmailMessage:
    return BytesParser(policy=policy.default).parsebytes(raw)


def text_of(part: Any) -> str:
    """A part's text with line ends as Python has them."""
    content: str = part.get_content()
    return content.replace("\r\n", "\n")


def lines(text: str) -> str:
    """Whatever line ends a body came with, a message has only one kind of them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


# ------------------------------------------------------------------------------------------ by example


def test_the_headers_are_these_in_this_order() -> None:
    message = parsed(composed(cc="c@example.org", bcc="b@example.org", reply_to="r@example.org"))

    assert [
        "Date", "Message-ID", "From", "To", "Cc", "Reply-To", "Subject", "MIME-Version", "Content-Type",
        "Content-Transfer-Encoding",
    ] == message.keys()  # fmt: skip
    assert "Wed, 19 Nov 2025 20:37:35 +0000" == message["Date"]
    assert f"<{ID}@example.com>" == message["Message-ID"]
    assert b"b@example.org" not in composed(bcc="b@example.org"), "Bcc stands in no header"


def test_the_shape_follows_from_what_there_is() -> None:
    """text | html | alternative | mixed around any of them."""
    file = {"name": "a.bin", "content": "AAE="}

    def shape(part: Any) -> Any:
        kind = part.get_content_type()
        return (kind, *map(shape, part.iter_parts())) if part.is_multipart() else kind

    assert "text/plain" == shape(parsed(composed()))
    assert "text/html" == shape(parsed(composed(body_text=None, body_html="<p>")))
    both = ("multipart/alternative", "text/plain", "text/html")
    assert both == shape(parsed(composed(body_html="<p>")))
    assert ("multipart/mixed", both, "application/octet-stream") == shape(
        parsed(composed(body_html="<p>", attachments=[file]))
    )
    assert ("multipart/mixed", "text/plain", "application/octet-stream") == shape(
        parsed(composed(attachments=[file]))
    )


@pytest.mark.parametrize(
    "subject",
    [
        "✓",
        "=?utf-8?q?not_an_encoded_word",
        "a =?utf-8?q?b?= c",
        "  spaces around  ",
        "many      spaces   inside",
        " ",
        "x" * 998,
        "ü" * 998,
        "word " * 199 + "end",
        "🏳️‍🌈" * 200,
        "a" * 70 + " " + "ß" * 70 + " " + "a" * 300,
        "=?",
        "?=",
        "日本語の件名" * 100,
        "tab-free: colon: again",
    ],
)
def test_a_subject_comes_back_as_it_went_in(subject: str) -> None:
    assert subject == parsed(composed(subject=subject))["Subject"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n",
        "no end",
        "an end\n",
        "two\n\n",
        "dos\r\nends\r\n",
        "old\rmac\r",
        "mixed\r\nends\nof\rall\n\rkinds",
        ".",
        ".\n",
        "\n.\n",
        "..\r\n.\r\n",
        "From here\nFrom there",
        " trailing \nspace\t\n \n",
        "=20=3D=\n=",
        "x" * 5_000,
        "x" * 997 + "\n" + "." * 3_000,
        "ü" * 3_000,
        "日本語\n" * 500,
        "a\0b\x01\x7f\x85\u2028\u2029",
        "--=_" + "0" * 24 + "a\n",
        "e=C3=BC" * 50,
    ],
)
@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_a_body_comes_back_as_it_went_in(body: str, html: bool, beside: bool) -> None:
    """Alone, where the message ends with it, and before a boundary."""
    field = "body_html" if html else "body_text"
    more: dict[str, Any] = {"body_text": None, field: body}
    if beside:
        more["attachments"] = [{"name": "a.txt", "content": "YQ=="}]
    part = parsed(composed(**more)).get_body(("html",) if html else ("plain",))

    assert lines(body) == text_of(part)


def test_what_needs_eight_bits_is_encoded() -> None:
    """No 8BITMIME is asked of anybody; only an address beyond ASCII needs SMTPUTF8."""
    raw = composed(subject="ü", body_text="ü\n" * 99, body_html="<p>日本</p>", custom_headers={"X-A": "ü"})
    assert raw.isascii()

    utf8 = composed(to="jürgen@example.org")
    assert not utf8.isascii()
    assert "To: jürgen@example.org\r\n".encode() in utf8


def test_most_of_a_latin_text_can_be_read_on_the_wire() -> None:
    """Quoted-printable where it serves whoever reads a log; base64 for the rest."""
    assert b"quoted-printable" in composed(body_text="Der Zug nach München fährt heute von Gleis 7 ab.\n" * 20)
    assert b"base64" in composed(body_text="日本語" * 20)


def test_a_date_is_the_same_in_every_language() -> None:
    assert "Thu, 01 Jan 1970 00:00:00 +0000" == date(0)
    assert "Sat, 29 Feb 2020 23:59:59 +0000" == date(1_583_020_799)


@pytest.mark.parametrize(
    ("name", "type", "content"),
    [
        ("a.txt", "text/plain", b"plain\r\ntext"),
        ("a.txt", 'text/plain; charset="iso-8859-1"', b"\xfc"),
        ("ü ✓.pdf", "application/pdf", bytes(range(256)) * 40),
        ('a "quoted" name.bin', "application/x-thing", b""),
        ("x" * 250 + ".bin", "application/octet-stream", b"\r\n.\r\n"),
        ("ü" * 255, "image/png", b"\x89PNG\r\n\x1a\n"),
        ("=?utf-8?q?a?=.bin", "application/octet-stream", b"--=_"),
        ("semi;colon=1.csv", "text/csv", "ü;1\n".encode()),
    ],
)
def test_an_attachment_comes_back_as_it_went_in(name: str, type: str, content: bytes) -> None:
    import base64

    file = {"name": name, "type": type, "content": base64.b64encode(content).decode()}
    (part,) = parsed(composed(attachments=[file])).iter_attachments()

    assert name == part.get_filename()
    assert type.partition(";")[0] == part.get_content_type()
    assert content == part.get_payload(decode=True)
    assert "attachment" == part.get_content_disposition()


# ------------------------------------------------------------------------------------------ header injection


@pytest.mark.parametrize(
    "evil",
    [
        "a\r\nBcc: x@example.org",
        "a\nBcc: x@example.org",
        "a\rBcc: x@example.org",
        "a\0b",
        "a\x0bb",
        "a\x85b",
        "a\u2028Bcc: x@example.org",
        "a\u2029b",
        "a\x7fb",
        "a\tb",
        "trailing\n",
        "\ud800",
        "A 🏳️ subject=?UTF-8?Q?=0A?=Bcc: injected@example.com",
        "=?utf-8?b?YQ0KQmNjOiB4QGV4YW1wbGUub3Jn?=",
        "=?utf-16?b?AGEADQAK?=",
        "=?iso-8859-1?q?a=0D=0ABcc:_x?=",
        "=?utf-8?Q?=E2=80=A8?=",
    ],
)
@pytest.mark.parametrize("place", ["subject", "name", "header", "file"])
def test_no_control_gets_into_a_header_even_in_an_encoded_word(evil: str, place: str) -> None:
    """The emoji vector made a Bcc of a subject on some releases of the standard library (CVE-2024-6923)."""
    places: dict[str, dict[str, Any]] = {
        "subject": {"subject": evil},
        "name": {"from": f'"{evil}" <shop@example.com>'},
        "header": {"custom_headers": {"X-A": evil}},
        "file": {"attachments": [{"name": evil, "content": ""}]},
    }
    with pytest.raises(PayloadError) as refused:
        composed(**places[place])
    wanted = {
        "subject": "subject",
        "name": "from",
        "header": "custom_headers.X-A",
        "file": "attachments[0].name",
    }

    assert [wanted[place]] == [field for field, _ in refused.value.problems]


@pytest.mark.parametrize(
    "name",
    [
        "From", "to", "CC", "Bcc", "SUBJECT", "Date", "Message-ID", "Content-Type", "Content-Anything", "MIME-Version",
        "Received", "Return-Path", "DKIM-Signature", "X A", "X-A:", "X-A\r\nBcc", "", "X-ü", "X-\0", ":", "X" * 77,
    ],
)  # fmt: skip
def test_a_header_that_is_not_for_clients_is_refused(name: str) -> None:
    with pytest.raises(PayloadError) as refused:
        composed(custom_headers={name: "x"})

    assert all(field.startswith("custom_headers.") for field, _ in refused.value.problems)


@pytest.mark.parametrize(
    "local", ['"a b"', '"a@b"', "a<b", "a>b", '"a\\"b"', "a\r\nRCPT", "a b", '"\r\n"', '"a\0"']
)
def test_an_address_ends_no_command(local: str) -> None:
    """Quoted local parts are taken; whatever could end a command or a path is not."""
    problems: list[str] = []
    taken = ""
    try:
        taken = payload.read({**BASE, "to": f"{local}@example.org"}).to[0].address
    except PayloadError as refused:
        problems = [field for field, _ in refused.problems]

    assert ([] if taken else ["to"]) == problems
    assert re.search(r"[\x00-\x1f\x7f<>]", taken) is None


# ------------------------------------------------------------------------------------------ by law

HEADER_TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u2028\u2029"), min_size=1, max_size=300
)
WORDS = st.lists(HEADER_TEXT, min_size=1, max_size=8).map(" ".join).filter(lambda text: len(text) <= 998)
BODY = st.text(st.characters(exclude_categories=["Cs"]), max_size=3_000) | st.lists(
    st.text(max_size=1_500).filter(lambda text: not re.search("[\ud800-\udfff]", text)), max_size=6
).map("\r\n".join)
HEADER_NAME = st.from_regex(r"X-[!-9;-~]{1,60}", fullmatch=True)
PERSON = st.tuples(
    st.one_of(st.just(""), WORDS.filter(lambda text: len(text) < 200)),
    st.from_regex(r"[a-z0-9.+_-]{1,20}", fullmatch=True).filter(
        lambda local: not local.startswith(".") and not local.endswith(".") and ".." not in local
    ),
)


def takeable(text: str) -> bool:
    """Whether a header may hold it: what hides a control in an encoded word is refused, rightly."""
    from staffetta.mail.headers import control_in

    return not control_in(text)


def written(person: tuple[str, str]) -> str:
    name, local = person
    if not name:
        return f"{local}@example.org"
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" <{local}@example.org>'


def shown(person: tuple[str, str]) -> tuple[str, str]:
    """Runs of white space in a display name mean no more than one space, and none at its ends."""
    return re.sub(r"\s{2,}", " ", person[0].strip()), f"{person[1]}@example.org"


def people(message: EmailMessage, name: str) -> list[tuple[str, str]]:
    return [(one.display_name, one.addr_spec) for one in message[name].addresses]


@COMMON
@given(subject=WORDS.filter(takeable))
@example(subject="=?utf-8?b?8J+P?= x")
def test_any_subject_comes_back(subject: str) -> None:
    assert subject == parsed(composed(subject=subject))["Subject"]


@COMMON
@given(text=BODY, html=BODY)
def test_any_bodies_come_back(text: str, html: str) -> None:
    message = parsed(composed(body_text=text, body_html=html))
    plain, rich = (message.get_body((kind,)) for kind in ("plain", "html"))

    assert (lines(text), lines(html)) == (text_of(plain), text_of(rich))


@COMMON
@given(headers=st.dictionaries(HEADER_NAME, WORDS.filter(takeable), max_size=5))
def test_any_headers_come_back_and_no_others_come_along(headers: Mapping[str, str]) -> None:
    """Header injection would show as a header that nobody meant."""
    if len({name.lower() for name in headers}) < len(headers):
        return
    message = parsed(composed(custom_headers=dict(headers)))

    for name, value in headers.items():
        assert value == message[name]
    known = {
        "Date",
        "Message-ID",
        "From",
        "To",
        "Subject",
        "MIME-Version",
        "Content-Type",
        "Content-Transfer-Encoding",
    }
    assert sorted([*known, *headers]) == sorted(message.keys())


@COMMON
@example(sender=("a \xa0b", "x"), to=[("\u3000a", "x")], cc=[("a\xa0\xa0b", "x")])
@given(
    sender=PERSON.filter(lambda one: takeable(one[0])),
    to=st.lists(PERSON.filter(lambda one: takeable(one[0])), min_size=1, max_size=12),
    cc=st.lists(PERSON.filter(lambda one: takeable(one[0])), min_size=1, max_size=5),
)
def test_any_people_come_back(
    sender: tuple[str, str], to: list[tuple[str, str]], cc: list[tuple[str, str]]
) -> None:
    message = parsed(
        composed(
            **{"from": written(sender), "to": [written(one) for one in to], "cc": [written(one) for one in cc]}
        )
    )

    assert [shown(sender)] == people(message, "From")
    assert [shown(one) for one in to] == people(message, "To")
    assert [shown(one) for one in cc] == people(message, "Cc")


@COMMON
@given(
    name=st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\\u2028\u2029"), min_size=1, max_size=255)
    .filter(lambda name: takeable(name) and name.strip() not in ("", ".", "..")),
    content=st.binary(max_size=2_000),
)  # fmt: skip
def test_any_attachment_comes_back(name: str, content: bytes) -> None:
    import base64

    file = {"name": name, "type": "application/x-any", "content": base64.b64encode(content).decode()}
    (part,) = parsed(composed(attachments=[file])).iter_attachments()

    assert (name.strip(), content) == (part.get_filename(), part.get_payload(decode=True))

"""Reading a message back for people: what it says, and that no message can break the reading."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import preview

PNG = base64.b64encode(b"\x89PNG not really").decode()
WHOLE = f"""From: =?utf-8?q?Ren=C3=A9?= <rene@acme.example>
Subject: =?utf-8?q?Your_invoice_=E2=9C=93?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=a

--a
Content-Type: multipart/alternative; boundary=b

--b
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Caff=E8
--b
Content-Type: text/html; charset=utf-8

<p>Caff\u00e8 <img src="cid:logo"></p>
--b--
--a
Content-Type: image/png
Content-ID: <logo>
Content-Disposition: inline; filename=logo.png
Content-Transfer-Encoding: base64

{PNG}
--a
Content-Type: application/pdf
Content-Disposition: attachment; filename="bill.pdf"
Content-Transfer-Encoding: base64

AAAA
--a--
"""


def test_a_message_is_shown_whole() -> None:
    found = preview.read(WHOLE.replace("\n", "\r\n").encode())
    assert found.subject == "Your invoice \u2713"
    assert found.text is not None
    assert found.text.strip() == "Caff\u00e8"
    assert found.html is not None
    assert "Caff\u00e8" in found.html
    assert {"logo": f"data:image/png;base64,{PNG}"} == found.images
    assert [("logo.png", "image/png", True), ("bill.pdf", "application/pdf", False)] == [
        (one.name, one.kind, one.inline) for one in found.attached
    ]
    assert ("From", "=?utf-8?q?Ren=C3=A9?= <rene@acme.example>") in found.headers
    assert found.problem == ""


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reading(raw: bytes) -> None:
    assert preview.read(raw).size == len(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"Content-Type: multipart/mixed; boundary=a\r\n\r\n" + b"--a\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n" * 3_000,
        b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(2_000)),
        b"Subject: =?x-unknown?b?////?=\r\nContent-Type: text/html; charset=nonsense\r\n\r\n\xff\xfe",
        b'Content-Type: text/plain; charset="utf-16"\r\n\r\nodd',
        b"From: " + b"a@b, " * 50_000 + b"\r\n\r\nx",
        b"Content-Type: message/rfc822\r\n\r\n" * 1_000,
        b"Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!!",
    ],
)  # fmt: skip
def test_what_is_deep_strange_or_endless_is_told_and_not_fatal(raw: bytes) -> None:
    assert preview.read(raw).size == len(raw)


def test_a_large_message_is_left_to_the_download() -> None:
    found = preview.read(b"Subject: big\r\n\r\n" + b"x" * preview.BYTES_MAX)
    assert (found.subject, found.text) == ("big", None)
    assert "too large" in found.problem

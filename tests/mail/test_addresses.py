"""Addresses: what is taken, as what, and what is refused in words; never slowly, and never with a character that
could end a command or a header."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from staffetta.mail.addresses import ADDRESS_OCTETS, AddressError, mailbox
from staffetta.mail.headers import Mailbox


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("a@b.example", "", "a@b.example"),
        ("a@localhost", "", "a@localhost"),
        ("A.b+c@B.Example", "", "A.b+c@B.Example"),
        ("o'neil!#$%&*/=?^_`{|}~-@b.example", "", "o'neil!#$%&*/=?^_`{|}~-@b.example"),
        ("<a@b.example>", "", "a@b.example"),
        ("Ann <a@b.example>", "Ann", "a@b.example"),
        ("  Ann   Other  <a@b.example> ", "Ann Other", "a@b.example"),
        ('"Other, Ann" <a@b.example>', "Other, Ann", "a@b.example"),
        (r'"Ann \"the\" \\ Other" <a@b.example>', r'Ann "the" \ Other', "a@b.example"),
        ("Ann (Sales) [IT] a@b <a@b.example>", "Ann (Sales) [IT] a@b", "a@b.example"),
        ("Jürgen <j@b.example>", "Jürgen", "j@b.example"),
        ("j@bücher.example", "", "j@xn--bcher-kva.example"),
        ("j@bücher.test", "", "j@xn--bcher-kva.test"),
        ("jürgen@b.example", "", "jürgen@b.example"),
        ("jürgen@localhost", "", "jürgen@localhost"),
        ("用户@例子.广告", "", "用户@xn--fsqu00a.xn--4rr70v"),
        ('"a b"@b.example', "", '"a b"@b.example'),
        ('"a@b"@c.example', "", '"a@b"@c.example'),
        ("a@[127.0.0.1]", "", "a@[127.0.0.1]"),
        ("a@[IPv6:::1]", "", "a@[IPv6:::1]"),
        ("a" * 64 + "@b.example", "", "a" * 64 + "@b.example"),
    ],
)
def test_an_address_is_read(text: str, name: str, address: str) -> None:
    assert Mailbox(name=name, address=address) == mailbox(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("<>", "is empty"),
        ("a", "must have an @"),
        ("@b.example", "before the @"),
        ("a@", "after the @"),
        ("a@b.", "period"),
        ("a@b..c", "two periods"),
        (".a@b.c", "start with a period"),
        ("a@-b.c", "hyphen"),
        ("a@b_c.d", "'_'"),
        ("a@b c", "SPACE"),
        ("a@b, c@d", "','"),
        ("a@b; c@d", "';'"),
        ("undisclosed-recipients:;", "@-sign"),
        ("a@b>", "has no <"),
        ("<<a@b>>", "'>'"),
        ("Ann <a@b> x", "angle brackets before its end"),
        ("Other, Ann <a@b.c>", "double quotes"),
        ("c@d, Ann <a@b.c>", "double quotes"),
        ('Ann "x <a@b.c>', "double quotes"),
        ('"<a>"@b.c', "angle brackets"),
        ("a" * 65 + "@b.c", "64 octets"),
        ("é" * 33 + "@b.c", "64"),
        ("a@" + "b." * 126 + "ccc", "254 octets"),
        ("x" * 990 + " <a@b.example>", "1000 characters"),
        ("a\r\nRCPT TO:<x@y>@b.c", "U+000D"),
        ("a@b.c\n", "U+000A"),
        ("a\0@b.c", "U+0000"),
        ("Ann\x85 <a@b.c>", "U+0085"),
        ("Ann\u2028 <a@b.c>", "U+2028"),
        ("Ann\ud800 <a@b.c>", "U+D800"),
        ("=?utf-8?q?Ann=0D=0ABcc:_x?= <a@b.c>", "inside an encoded word"),
        ("x\u200b@b.c", "ZERO WIDTH SPACE"),
    ],
)
def test_what_is_no_address_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(AddressError, match=re.escape(words)):
        mailbox(text)


_PIECES = st.sampled_from(
    ["a", "@", ".", "<", ">", '"', "\\", " ", ",", "é", "\r", "\n", "\0", "(", "=?utf-8?q?=0A?=", "b.c"]
)


@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=12).map("".join)))
@example("\u2024@b.c")
@example("a@\uff0e.c")
@example("\uff1ca\uff1e@b.c")
def test_what_is_taken_can_stand_in_a_command_and_in_a_header(text: str) -> None:
    """Unicode folds some characters into dangerous ones: what counts is what comes out."""
    try:
        found = mailbox(text)
    except AddressError:
        return
    assert re.search(r"[\x00-\x1f\x7f<>]", found.address) is None
    assert len(found.address.encode()) <= ADDRESS_OCTETS
    assert found.address.rpartition("@")[2].isascii()
    assert re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", found.name) is None


@given(st.text(max_size=60))
def test_an_address_that_was_read_reads_the_same_again(text: str) -> None:
    try:
        address = mailbox(text).address
    except AddressError:
        return
    assert address == mailbox(address).address


_SIZE = 64 * 1024


@pytest.mark.parametrize(
    "text",
    [
        "a" * _SIZE, "a@" + "b." * (_SIZE // 2), '"' + '\\"' * (_SIZE // 2), "<" * _SIZE, "a@b," * (_SIZE // 4),
        "=?utf-8?q?" * (_SIZE // 10), "(" * _SIZE, " " * _SIZE + "<a@b.c>", "é" * (_SIZE // 2) + "@b.c",
        "x" * 900 + "=?a?b?", "é@" + "ü-" * 400, '"' + "\\" * 900 + '" <a@b.c>', "=?" * 480, ("=?punycode?q?" + "a" * 60 + "-?=") * 13,
    ],
    ids=lambda text: f"{text[:12]!r}x{len(text)}",
)  # fmt: skip
def test_no_address_takes_long_to_refuse(text: str) -> None:
    with pytest.raises(AddressError):
        mailbox("é@b.c \x00")  # what is imported only once is not counted
    took: list[float] = []
    for turn in range(3):
        begun = time.process_time()
        with suppress(AddressError):
            mailbox(text + " " * turn)
        took.append(time.process_time() - begun)
    assert min(took) < 0.005

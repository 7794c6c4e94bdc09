"""API keys: what they look like, what is stored of them, and whom they let in."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import keys
from staffetta.mail.operators import ApiKey

SECRETS = st.binary(min_size=32, max_size=32)


def made(secret: bytes = bytes(range(32)), role: keys.Role = "send") -> tuple[str, ApiKey]:
    return keys.make(random=secret, role=role, company_id="acme", now=1, note="for the shop")


@given(SECRETS)
def test_a_key_opens_its_own_lock_and_is_found_by_its_id(secret: bytes) -> None:
    text, stored = made(secret)
    assert keys.opens(text, stored)
    assert stored.id == keys.public_id(text)


@given(SECRETS, SECRETS)
def test_different_secrets_make_different_keys(one: bytes, other: bytes) -> None:
    assert (made(one)[0] == made(other)[0]) == (one == other)


@given(SECRETS)
def test_all_32_bytes_are_in_the_key(secret: bytes) -> None:
    digits = made(secret)[0][3:46]
    number = 0
    for digit in digits:
        number = number * 62 + keys._DIGITS.index(digit)
    assert secret == number.to_bytes(32)


def test_a_key_has_a_shape_that_a_secret_scanner_can_know() -> None:
    assert re.fullmatch(r"sk_[0-9A-Za-z]{49}", made()[0])


def test_what_is_stored_opens_nothing() -> None:
    """A thief of the store finds no usable key in it."""
    text, stored = made()
    dump = msgspec.json.encode(stored).decode()
    assert text not in dump
    assert text[3 + keys.ID_LENGTH : -6] not in dump
    assert not keys.opens(stored.sha256, stored)
    assert not keys.opens(stored.id, stored)


def test_a_revoked_key_opens_nothing() -> None:
    text, stored = made()
    assert not keys.opens(text, msgspec.structs.replace(stored, revoked_at=2))


def test_a_key_that_nobody_stored_opens_nothing() -> None:
    assert not keys.opens(made()[0], None)


@given(SECRETS, st.integers(3, 51), st.sampled_from("0aZ"))
def test_a_typing_error_is_seen_without_asking_the_store(secret: bytes, at: int, typed: str) -> None:
    text, stored = made(secret)
    wrong = text[:at] + typed + text[at + 1 :]
    assert wrong == text or (keys.public_id(wrong) is None and not keys.opens(wrong, stored))


@given(st.text(max_size=100))
def test_whatever_is_sent_as_a_key_is_only_looked_at(text: str) -> None:
    assert keys.public_id(text) is None


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("send", {"send"}),
        ("read", {"read"}),
        ("operate", {"send", "read", "operate"}),
        ("", set()),
        ("root", set()),
    ],
)
def test_a_role_allows_only_its_own_share(role: str, allowed: set[str]) -> None:
    assert allowed == {needed for needed in keys.ROLES if keys.allows(role, needed)}

"""Ids: UUIDs that sort by time, and ids that follow from a key so that a repeat meets its own first try."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.identity import body_fingerprint, is_uuid, keyed_id, uuid7


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=16))
def test_an_id_is_a_uuid_of_version_7_in_lower_case(now_ms: int, random: bytes) -> None:
    text = uuid7(now_ms, random)
    assert is_uuid(text)
    assert (7, uuid.RFC_4122) == (uuid.UUID(text).version, uuid.UUID(text).variant)
    assert now_ms == uuid.UUID(text).int >> 80


@given(st.integers(0, 2**48 - 2), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_later_ids_sort_later(now_ms: int, first: bytes, second: bytes) -> None:
    assert uuid7(now_ms, first) < uuid7(now_ms + 1, second)


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_other_chance_gives_another_id(first: bytes, second: bytes) -> None:
    """74 of the 80 bits are used: version and variant take the room of six."""
    used = (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")) & ~(0x3F << 60)
    assert (uuid7(5, first) == uuid7(5, second)) == (used == 0)


def test_only_our_own_spelling_is_an_id() -> None:
    good = "0193a5b2-0000-7000-8000-000000000000"
    assert is_uuid(good)
    wrong = (
        good.upper(),
        good[:-1],
        good + "0",
        f"{{{good}}}",
        good.replace("-", ""),
        good + "\n",
        "",
        "g" + good[1:],
    )
    assert [text for text in wrong if is_uuid(text)] == []


def test_a_keyed_id_follows_from_company_key_body_and_place_and_from_nothing_else() -> None:
    """Lengths are part of it: what ends one value cannot begin the next."""
    first = keyed_id("acme", "key", "body", 0)
    assert first == keyed_id("acme", "key", "body", 0)
    assert is_uuid(first)
    assert (8, uuid.RFC_4122) == (uuid.UUID(first).version, uuid.UUID(first).variant)
    others = {
        keyed_id("acmf", "key", "body", 0), keyed_id("acme", "kez", "body", 0), keyed_id("acme", "key", "bodz", 0),
        keyed_id("acme", "key", "body", 1), keyed_id("acm", "ekey", "body", 0), keyed_id("acme:3", "key", "body", 0),
        keyed_id("acme", "key", "body:0", 0),
    }  # fmt: skip
    assert first not in others
    assert 7 == len(others)


def test_one_payload_and_a_batch_of_the_same_bytes_are_different_requests() -> None:
    assert body_fingerprint("one", b"[]") != body_fingerprint("batch", b"[]")

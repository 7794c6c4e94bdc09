"""The page of the Python clients is the one that they make."""

from __future__ import annotations

from pathlib import Path

from staffetta.client.messages import Message
from staffetta.client.reference import reference
from staffetta.mail.payload import FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


def test_the_page_is_the_one_the_clients_make() -> None:
    """`python -m staffetta.client.reference docs/reference` writes it anew."""
    assert reference() == PAGE.read_text(encoding="utf-8")


def test_a_message_has_every_field_of_a_payload() -> None:
    """A field that the API takes and the client does not know could not be typed."""
    assert {name.rstrip("_") for name in Message.__annotations__} == FIELDS

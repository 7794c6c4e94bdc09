"""Addresses as people write them, read into mailboxes: a short way for the usual, email-validator for the rest.

What comes out can stand in an SMTP command and in a header as it is: no control character, no angle bracket, no
more than 254 octets. Nothing is looked up.
"""

from __future__ import annotations

import re
from functools import lru_cache

from staffetta.mail.headers import Mailbox, control_in

ADDRESS_OCTETS = 254
LOCAL_OCTETS = 64
TEXT_MAX = 1_000
"""Characters of an address with its display name."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_USUAL = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    rf"@{_LABEL}(?:\.{_LABEL})*"
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_UNFIT_BARE = re.compile(r'["<>,;\\]')
_UNDER = ".example.com"
"""Stands behind a domain while it is checked, so that `localhost` and `x.test` too are judged by their
syntax alone: whether they can be reached is for the transport to find out."""


class AddressError(ValueError):
    """This is not an address; the message says why."""


@lru_cache(maxsize=4096)
def mailbox(text: str) -> Mailbox:
    """One address, with a display name or without: `a@b.example`, `Ann <a@b.example>`, `"B, A" <a@b.example>`.

    :raises AddressError: with words for whoever wrote it.
    """
    if _USUAL.fullmatch(text) and len(text) <= ADDRESS_OCTETS and text.index("@") <= LOCAL_OCTETS:
        return Mailbox(address=text)
    if len(text) > TEXT_MAX:
        raise AddressError(f"is longer than {TEXT_MAX} characters; give one address here")
    control = control_in(text)
    if control:
        raise AddressError(f"holds a control character ({control})")
    text = text.strip(" ")
    if not text.endswith(">"):
        if "<" in text:
            raise AddressError(
                "has angle brackets before its end; write the address last, as in Ann <a@b.example>"
            )
        return Mailbox(address=envelope_address(text))
    name, opening, address = text[:-1].rpartition("<")
    if not opening:
        raise AddressError("ends with > but has no <")
    return Mailbox(address=envelope_address(address), name=_display_name(name.strip(" ")))


def _display_name(text: str) -> str:
    """The name without its quotes; runs of white space mean no more than one space, for readers fold them so."""
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        text = re.sub(r"\\(.)", r"\1", quoted.group(1))
    elif unfit := _UNFIT_BARE.search(text):
        raise AddressError(
            f"has {unfit.group()!r} in its display name; put the name in double quotes, one address each"
        )
    return re.sub(r"\s{2,}", " ", text.strip())


def envelope_address(text: str) -> str:
    """The address as the envelope says it.

    :raises AddressError: it is none.
    """
    if _USUAL.fullmatch(text) is None:
        text = _unusual(text)
    local, _, _ = text.rpartition("@")
    if len(local.encode()) > LOCAL_OCTETS:
        raise AddressError(f"has more than {LOCAL_OCTETS} octets before the @")
    if len(text.encode()) > ADDRESS_OCTETS:
        raise AddressError(f"is longer than {ADDRESS_OCTETS} octets")
    return text


def _unusual(text: str) -> str:
    """Quoted local parts, address literals, and everything that is not ASCII."""
    # Its import costs 40 ms and 5 MB, and most programs never meet such an address.
    from email_validator import EmailNotValidError, validate_email

    if not text:
        raise AddressError("is empty")
    literal = text.endswith("]")
    try:
        found = validate_email(
            text if literal else text + _UNDER,
            check_deliverability=False,
            globally_deliverable=False,
            allow_quoted_local=True,
            allow_domain_literal=True,
        )
    except EmailNotValidError as error:
        raise AddressError(f"is not an e-mail address: {error}".rstrip(".")) from error
    domain = found.ascii_domain if literal else found.ascii_domain.removesuffix(_UNDER)
    if "<" in found.local_part or ">" in found.local_part:
        raise AddressError(
            "has angle brackets before the @; such an address cannot be handed to a server safely"
        )
    return f"{found.local_part}@{domain}"

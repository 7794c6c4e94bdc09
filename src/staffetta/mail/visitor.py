"""Messages that other programs composed: whom they go to by their own headers, and what of them nobody may see."""

from __future__ import annotations

import re
from email import policy
from email.parser import BytesHeaderParser

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.addresses import AddressError, envelope_address

RECIPIENTS_MAX = 50

_HEAD_ENDS = re.compile(rb"\r?\n\r?\n")
_BCC = re.compile(rb"^bcc[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE | re.MULTILINE)


def envelope_of(message: bytes) -> tuple[str, tuple[str, ...]]:
    """Sender and recipients by From, To, Cc and Bcc.

    :raises PayloadError: it names no sender or nobody, or an address that no command may carry.
    """
    try:
        head = BytesHeaderParser(policy=policy.default).parsebytes(message)
        senders = _addresses(head.get_all("From", []))
        everybody = _addresses([one for name in ("To", "Cc", "Bcc") for one in head.get_all(name, [])])
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise PayloadError([FieldProblem("message", f"its headers cannot be read: {error}")]) from error
    if not senders or not everybody:
        missing = "From" if not senders else "To, Cc or Bcc"
        raise PayloadError([FieldProblem("message", f"has no address in {missing}")])
    recipients = tuple(dict.fromkeys(everybody))
    if len(recipients) > RECIPIENTS_MAX:
        raise PayloadError([FieldProblem("message", f"names more than {RECIPIENTS_MAX} recipients")])
    try:
        return envelope_address(senders[0]), tuple(envelope_address(address) for address in recipients)
    except AddressError as error:
        raise PayloadError([FieldProblem("message", f"one of its addresses {error}")]) from error


def _addresses(headers: list[object]) -> list[str]:
    return [one.addr_spec for header in headers for one in getattr(header, "addresses", ()) if one.addr_spec]


def without_bcc(message: bytes) -> bytes:
    """The message as everybody may see it."""
    end = _HEAD_ENDS.search(message)
    if end is None:
        return _BCC.sub(b"", message)
    first_line_end = message.index(b"\n", end.start()) + 1
    return _BCC.sub(b"", message[:first_line_end]) + message[first_line_end:]

"""Jobs as bytes: 16 for an id that is a UUID, and the few that tell company, priority, due time and handle."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from staffetta.mail.message import Job

_HEAD = struct.Struct(">HBBQ")
_SUSPECT = 128
_DUE_MAX = (1 << 44) - 1
"""Due times share a score with ten priorities. The year 2527."""


def encode_id(id: str) -> bytes:
    """A UUID in its usual form is 16 bytes long; no other id is."""
    if len(id) == 36 and id[8] == id[13] == id[18] == id[23] == "-":
        try:
            raw = bytes.fromhex(id.replace("-", ""))
        except ValueError:
            raw = b""
        if len(raw) == 16 and id == id.lower():
            return raw
    text = id.encode("utf-8", "surrogatepass")
    return (b"\0\0" if len(text) == 15 else b"\0") + text


def decode_id(raw: bytes) -> str:
    if len(raw) == 16:
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return raw[2 if raw.startswith(b"\0\0") else 1 :].decode("utf-8", "surrogatepass")


def encode_name(company_id: str) -> bytes:
    return company_id.encode("utf-8", "surrogatepass")


def decode_name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def encode_job(job: Job, company: int) -> bytes:
    """`company` is its place (from 1) among those of the call."""
    ref = job.ref.to_bytes((job.ref.bit_length() + 7) // 8, "big") if job.ref > 0 else b""
    priority = min(max(job.priority, 0), 10) | (_SUSPECT if job.suspect else 0)
    due = min(max(job.due_at, 0), _DUE_MAX)
    head = _HEAD.pack(company, len(ref) << 4, priority, due)
    return head[:4] + head[6:] + ref + encode_id(job.id)


def decode_job(text: bytes, company_id: str) -> Job:
    length = text[0] >> 4
    priority = text[1]
    return Job(
        id=decode_id(text[8 + length :]),
        company_id=company_id,
        priority=priority & 127,
        due_at=int.from_bytes(text[2:8], "big"),
        suspect=priority >= _SUSPECT,
        ref=int.from_bytes(text[8 : 8 + length], "big"),
    )


def encode_after(job: Job | None) -> bytes:
    return b"" if job is None else encode_job(job, 0)[2:]


def places(jobs: Sequence[Job]) -> dict[str, int]:
    """The companies of these jobs, numbered from 1 in the order in which they appear."""
    found: dict[str, int] = {}
    for job in jobs:
        found.setdefault(job.company_id, len(found) + 1)
    return found

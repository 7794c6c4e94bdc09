"""The shapes in which e-mails, histories, attempts and dead letters are shown, by HTTP and by `--json` alike.

Times are RFC 3339 in UTC; one that is not there is null. Content, secrets and hashes have no shape here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from staffetta.mail.deadletter import as_entry, iso
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, InWork, Millis, RecipientState
from staffetta.mail.operators import ApiKey, Pause

Shape: TypeAlias = dict[str, Any]

rfc3339 = iso
"""`2026-11-19T06:10:00.123Z`."""


def moment(at: Millis | None) -> str | None:
    return rfc3339(at) if at else None


def email(one: Email) -> Shape:
    """One line of a listing."""
    options = one.options
    shape: Shape = {
        "id": one.id,
        "status": str(one.status),
        "company_id": one.company_id,
        "reason": one.reason,
        "version": one.version,
        "created_at": rfc3339(one.created_at),
        "updated_at": rfc3339(one.updated_at),
        "next_attempt_at": moment(one.due_at),
        "expires_at": moment(one.expires_at),
        "reached_at": moment(one.reached_at),
        "priority": one.priority,
        "attempts_counted": one.attempts,
        "in_doubt": one.doubts > 0,
        "sequence": one.sequence,
        "from": one.sender,
        "recipients": [recipient(state) for state in one.recipients],
        "tags": list(options.tags),
        "metadata": options.metadata or {},
        "eml_file_path": one.eml_file_path,
        "payload_file_path": one.payload_file_path,
        "ttl": one.ttl,
    }
    return shape


def recipient(state: RecipientState) -> Shape:
    return {"address": state.address, "state": state.state, "reply": state.reply}


def story(one: Email, history: Sequence[HistoryEntry], attempts: Sequence[Attempt]) -> Shape:
    """One e-mail whole: `show ID` and `GET /v1/emails/{id}`."""
    return {
        **email(one),
        "history": [entry(each) for each in history],
        "attempts": [attempt(each) for each in attempts],
    }


def entry(one: HistoryEntry) -> Shape:
    """One row of the history."""
    return {"status": str(one.status), "cause": str(one.cause), "reason": one.reason, "at": rfc3339(one.at)}


def attempt(one: Attempt) -> Shape:
    """One entry of the journal, with the decision taken on it (null where none was: open, or no reply)."""
    decision = one.decision
    verdict = decision.verdict if decision else None
    first = one.replies[0].reply if one.replies else (decision.reply if decision else None)
    return {
        "attempt": one.attempt,
        "part": one.part,
        "transport": one.transport,
        "opened_at": moment(one.opened_at),
        "committed": one.committed_at > 0,
        "committed_at": moment(one.committed_at),
        "closed_at": moment(one.closed_at),
        "counted": one.counted,
        "stage": first.stage if first else None,
        "code": (verdict.code if verdict else "") or (str(first.code or first.name) if first else None),
        "enhanced": (verdict.enhanced if verdict else "") or (first.enhanced if first else None),
        "category": verdict.category if verdict else None,
        "retry": verdict.retry if verdict else None,
        "action": verdict.action if verdict else None,
        "reach": verdict.reach if verdict else None,
        "rule": verdict.rule if verdict else None,
        "policy": decision.policy if decision else None,
        "draw": decision.draw if decision else None,
        "delay_ms": decision.delay_ms if decision else None,
        "next_at": moment(decision.next_at) if decision else None,
        "replies": [
            {
                "address": each.address,
                "stage": each.reply.stage,
                "code": each.reply.code,
                "enhanced": each.reply.enhanced,
                "name": each.reply.name,
                "text": each.reply.text,
            }
            for each in one.replies
        ],
    }


def in_work(one: InWork) -> Shape:
    """One e-mail stuck in an in-work status."""
    claim = one.claim
    return {
        "id": claim.id,
        "status": str(one.status),
        "company_id": claim.company_id,
        "worker": claim.token.partition(".")[0] or None,
        "attempt": claim.attempt,
        "committed": one.committed_at > 0,
        "updated_at": moment(one.updated_at),
    }


def dead_letter(one: DeadLetter) -> Shape:
    """One dead letter without `originalData`. `retryingSince` stands beside it while it is being retried."""
    shape = as_entry(one)
    if one.retrying_since:
        shape["retryingSince"] = rfc3339(one.retrying_since)
    return shape


def whole_dead_letter(one: DeadLetter, payload: bytes | None) -> Shape:
    """With `originalData`: the payload as it was handed in; null where it was erased or is no JSON."""
    try:
        original = json.loads(payload) if payload is not None else None
    except (ValueError, RecursionError):
        original = None
    return {**dead_letter(one), "originalData": original}


def pause(one: Pause) -> Shape:
    return {"scope": one.scope, "name": one.name, "since": moment(one.since)}


def key(one: ApiKey) -> Shape:
    """A key as it is listed: never the key itself, nor its hash."""
    return {
        "id": one.id,
        "role": one.role,
        "company_id": one.company_id,
        "note": one.note,
        "created_at": rfc3339(one.created_at),
        "revoked_at": moment(one.revoked_at),
    }

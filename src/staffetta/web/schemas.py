"""The shapes of requests and answers as JSON Schema, for the OpenAPI document. Tests hold answers to them."""

from __future__ import annotations

from typing import Any, TypeAlias

from staffetta.mail.lifecycle import Cause, Status

Schema: TypeAlias = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_MAYBE_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_ID: Schema = {"type": "string"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def listed(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def made(properties: Schema, *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object with these properties, all there unless named optional, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


def page(item: str) -> Schema:
    return made({"items": listed(ref(item)), "next_cursor": _MAYBE_TEXT})


_ADDRESS: Schema = {"type": "string", "minLength": 3, "maxLength": 998, "examples": ["Ada <ada@example.com>"]}
_ADDRESSES: Schema = {"oneOf": [_ADDRESS, {"type": "array", "minItems": 1, "maxItems": 50, "items": _ADDRESS}]}
_FEW_ADDRESSES: Schema = {"oneOf": [_ADDRESS, {"type": "array", "maxItems": 5, "items": _ADDRESS}]}
_LIMIT: Schema = {"type": "integer", "minimum": 1}

ATTACHMENT: Schema = {
    "oneOf": [
        {"type": "string", "minLength": 1, "description": "A path under `attachments.base_path`."},
        made({"path": _TEXT, "name": _TEXT}),
        made({"name": _TEXT, "content": {"type": "string", "contentEncoding": "base64"}, "type": _TEXT},
             optional=("type",)),
    ]
}  # fmt: skip

PAYLOAD: Schema = {
    "type": "object",
    "description": "An e-mail to be sent. Unknown fields are an error that names them.",
    "properties": {
        "id": {
            "type": "string",
            "format": "uuid",
            "description": "Made where absent. Repeating it doubles nothing.",
        },
        "company_id": {"type": "string", "minLength": 1, "maxLength": 64},
        "from": _ADDRESS,
        "to": _ADDRESSES,
        "reply_to": _ADDRESSES,
        "cc": _FEW_ADDRESSES,
        "bcc": _FEW_ADDRESSES,
        "subject": {"type": "string", "minLength": 1, "maxLength": 998},
        "body_html": {"type": "string"},
        "body_text": {"type": "string"},
        "attachments": listed(ref("Attachment")),
        "custom_headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "priority": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
        "send_at": _TIME,
        "expires_in": {"type": "integer", "minimum": 1, "description": "Seconds."},
        "max_attempts": _LIMIT,
        "retry_delay": {**_LIMIT, "description": "Milliseconds."},
        "max_retry_delay": {**_LIMIT, "description": "Milliseconds."},
        "callback_url": {"type": "string", "format": "uri"},
        "tags": {"type": "array", "maxItems": 5, "items": _TEXT},
        "metadata": {"type": "object", "description": "4 KiB at most."},
        "in_doubt": {"enum": ["resend", "hold"]},
    },
    "required": ["from", "to", "subject"],
    "anyOf": [{"required": ["body_text"]}, {"required": ["body_html"]}],
    "additionalProperties": False,
    "examples": [
        {
            "from": "Shop <shop@example.com>",
            "to": "ada@example.com",
            "subject": "Your order",
            "body_text": "It is on its way.",
        }
    ],
}

_EMAIL: Schema = {
    "id": _ID,
    "status": ref("Status"),
    "company_id": _TEXT,
    "reason": _TEXT,
    "version": _WHOLE,
    "created_at": _TIME,
    "updated_at": _TIME,
    "next_attempt_at": _MAYBE_TIME,
    "expires_at": _MAYBE_TIME,
    "reached_at": _MAYBE_TIME,
    "priority": _WHOLE,
    "attempts_counted": _WHOLE,
    "in_doubt": _FLAG,
    "sequence": _WHOLE,
    "from": _TEXT,
    "recipients": listed(ref("Recipient")),
    "tags": listed(_TEXT),
    "metadata": {"type": "object"},
    "eml_file_path": _MAYBE_TEXT,
    "payload_file_path": _MAYBE_TEXT,
    "ttl": {"type": ["integer", "null"]},
}

_REPLY: Schema = made(
    {"address": _TEXT, "stage": _TEXT, "code": _WHOLE, "enhanced": _TEXT, "name": _TEXT, "text": _TEXT}
)

_ATTEMPT: Schema = made({
    "attempt": _WHOLE, "part": _WHOLE, "transport": _TEXT, "opened_at": _MAYBE_TIME, "committed": _FLAG,
    "committed_at": _MAYBE_TIME, "closed_at": _MAYBE_TIME, "counted": _FLAG, "stage": _MAYBE_TEXT,
    "code": _MAYBE_TEXT, "enhanced": _MAYBE_TEXT, "category": _MAYBE_TEXT,
    "retry": {"type": ["boolean", "null"]}, "action": _MAYBE_TEXT, "reach": _MAYBE_TEXT, "rule": _MAYBE_TEXT,
    "policy": _MAYBE_TEXT,
    "draw": {"type": ["number", "null"]}, "delay_ms": {"type": ["integer", "null"]}, "next_at": _MAYBE_TIME,
    "replies": listed(_REPLY),
})  # fmt: skip

_DEAD_LETTER: Schema = {
    "jobId": _ID,
    "outboxId": _ID,
    "companyId": _TEXT,
    "failedAttempts": _WHOLE,
    "lastFailureReason": {"type": "string", "minLength": 1, "maxLength": 500},
    "lastFailureCode": {"type": "string", "minLength": 1, "maxLength": 64},
    "lastFailureTimestamp": _TIME,
    "enqueuedAt": _TIME,
    "movedToDLQAt": _TIME,
    "ttl": _WHOLE,
    "retryingSince": _TIME,
}

_COUNTS: Schema = {"type": "object", "additionalProperties": _WHOLE}

SCHEMAS: dict[str, Schema] = {
    "Status": {"type": "string", "enum": [str(status) for status in Status]},
    "Payload": PAYLOAD,
    "Attachment": ATTACHMENT,
    "Kept": made({"id": _ID, "status": ref("Status")}),
    "BatchResult": {"oneOf": [ref("Kept"), made({"error": ref("Problem")})]},
    "BatchResults": made({"results": listed(ref("BatchResult"))}),
    "Recipient": made({
        "address": _TEXT,
        "state": {"enum": ["waiting", "accepted", "refused", "given-up", "in-doubt"]},
        "reply": _TEXT,
    }),
    "Email": made(_EMAIL),
    "HistoryEntry": made({
        "status": ref("Status"),
        "cause": {"type": "string", "enum": [str(cause) for cause in Cause]},
        "reason": _TEXT,
        "at": _TIME,
    }),
    "Attempt": _ATTEMPT,
    "Story": made({**_EMAIL, "history": listed(ref("HistoryEntry")), "attempts": listed(ref("Attempt"))}),
    "History": made({"id": _ID, "history": listed(ref("HistoryEntry"))}),
    "Emails": page("Email"),
    "StuckEmail": made({
        "id": _ID, "status": ref("Status"), "company_id": _TEXT, "worker": _MAYBE_TEXT, "attempt": _WHOLE,
        "committed": _FLAG, "updated_at": _MAYBE_TIME,
    }),
    "StuckEmails": made({"items": listed(ref("StuckEmail"))}),
    "Many": made({
        "dry_run": _FLAG, "count": _WHOLE, "ids": listed(_ID),
        "skipped": listed(made({"id": _ID, "reason": _TEXT})), "more": _FLAG,
    }),
    "DeadLetter": made(_DEAD_LETTER, optional=("lastFailureCode", "retryingSince")),
    "WholeDeadLetter": made({**_DEAD_LETTER, "originalData": {"type": ["object", "null"]}},
                            optional=("lastFailureCode", "retryingSince")),
    "DeadLetters": page("DeadLetter"),
    "DeadLetterStats": made({
        "size": _WHOLE, "by_code": _COUNTS, "by_company": _COUNTS, "oldest_at": _MAYBE_TIME,
    }),
    "Figures": made({"items": listed({"type": "object"})}),
    "Pauses": made({
        "pauses": listed(made({
            "scope": {"enum": ["all", "transport", "company"]}, "name": _TEXT, "since": _MAYBE_TIME,
        })),
    }),
    "Alive": made({"status": {"const": "ok"}}),
    "Readiness": made({
        "status": {"enum": ["ok", "degraded", "down"]},
        "parts": {
            "type": "object",
            "additionalProperties": made({"status": {"enum": ["ok", "degraded", "down"]}, "detail": _TEXT}),
        },
    }),
    "Problem": made(
        {
            "type": {"type": "string", "format": "uri-reference"},
            "title": _TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": _TEXT,
            "errors": listed(made({"field": _TEXT, "detail": _TEXT})),
        },
        optional=("errors",),
        description="RFC 9457 problem details; `errors` names every wrong field.",
    ),
}  # fmt: skip

"""Hear what became of your e-mails: a receiver of Staffetta's callbacks in plain Python.

    CALLBACK_SECRET=whsec_… python examples/receiver.py 8099

Three things matter. Believe only what is signed. Know repeats by their `webhook-id`, for a call whose answer
was lost comes again. Answer soon, with a 2xx: anything else means "tell me again later".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["CALLBACK_SECRET"].removeprefix("whsec_"))
TOLERANCE_SECONDS = 300
BODY_BYTES_MAX = 1_000_000

seen: set[str] = set()
"""Webhook ids that were dealt with. An application keeps them in its database, in the same transaction."""
latest: dict[str, int] = {}
"""By e-mail, the highest sequence heard: after a retry by hand an older outcome may still come in late."""


def genuine(webhook_id: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Standard Webhooks: HMAC-SHA256 over id, time and the exact bytes; an old one may be a replay."""
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in signatures.split(" "))


def deal_with(outcome: dict[str, object]) -> None:
    """What your application does with it."""
    sequence, reached_at, reason = outcome["sequence"], outcome["reached_at"], outcome["reason"]
    assert isinstance(sequence, int)
    ids = outcome["message_ids"]
    assert isinstance(ids, list)
    for email in ids:
        if sequence < latest.get(email, 0):
            continue
        latest[email] = sequence
        what = "sent" if outcome["code"] == "TRAVELING" else "not sent"
        print(f"{email} {what} at {reached_at}: {reason}", flush=True)
    for left_out in outcome.get("refused", []):  # type: ignore[attr-defined]  # JSON
        print(f"  but not to {left_out['address']}: {left_out['reply']}", flush=True)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection serves many calls

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(int(length))
        webhook_id = self.headers.get("webhook-id", "")
        timestamp, signatures = (
            self.headers.get("webhook-timestamp", ""),
            self.headers.get("webhook-signature", ""),
        )
        if not genuine(webhook_id, timestamp, signatures, body):
            return self.answer(401)
        if webhook_id not in seen:
            deal_with(json.loads(body))
            seen.add(webhook_id)
        return self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """The outcomes are log enough."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8099), Receiver)
    print(f"receiving at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()

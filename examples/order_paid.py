"""Hand one e-mail in, safely repeatable, and look what became of it.

    python examples/order_paid.py http://127.0.0.1:8025 ada@example.com 4711

Run it twice with the same order: there is one e-mail. The idempotency key says what the e-mail is *for*, so
that neither a retry of this program nor of the job that calls it sends a second one.
"""

from __future__ import annotations

import os
import sys
import time

from staffetta import Client
from staffetta.errors import PayloadError

ENDED = ("SENT", "FAILED", "INVALID")
PATIENCE_SECONDS = 20


def main(url: str, customer: str, order: str) -> int:
    with Client(url, os.environ.get("STAFFETTA_KEY", "")) as staffetta:
        try:
            receipt = staffetta.send(
                idempotency_key=f"order-{order}-paid",
                from_="Shop <shop@example.com>",
                to=customer,
                subject=f"Order {order} is paid",
                body_text=f"Thank you! Order {order} leaves us tomorrow.\n",
                body_html=f"<p>Thank you! Order <b>{order}</b> leaves us tomorrow.</p>\n",
                tags=["order"],
                metadata={"order": order},
            )
        except PayloadError as error:
            for field, problem in error.problems:
                print(f"{field}: {problem}")
            return 2
        print(f"{receipt.id} is kept")  # durable: from here on it is Staffetta's duty

        # An application would now go on, and be told by callback. This one waits, to have something to show.
        ends = time.monotonic() + PATIENCE_SECONDS
        email = staffetta.get(receipt.id)
        while not email.status.startswith(ENDED) and time.monotonic() < ends:
            time.sleep(0.1)
            email = staffetta.get(receipt.id)
        print(f"{email.status} after {len(email.attempts)} attempt(s)")
        for recipient in email.recipients:
            print(f"  {recipient.address}: {recipient.state} {recipient.reply}".rstrip())
    return 0 if email.status.startswith("SENT") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))

"""Hand many e-mails in at once with asyncio; wrong ones are named, right ones are kept.

    python examples/newsletter.py http://127.0.0.1:8025 2026-11 < addresses.txt

One address a line on standard input. The issue's name is the key: run it again after a crash and nobody gets
two.
"""

from __future__ import annotations

import asyncio
import os
import sys

from staffetta import AsyncClient
from staffetta.client import Message, Receipt


def letter(address: str, issue: str) -> Message:
    return {
        "from_": "News <news@example.com>",
        "to": address,
        "subject": f"News of {issue}",
        "body_text": "What happened at ours this month …\n",
        "custom_headers": {"List-Unsubscribe": "<https://example.com/unsubscribe>"},
        "priority": 9,  # behind what people wait for
        "tags": ["newsletter"],
    }


async def main(url: str, issue: str, addresses: list[str]) -> int:
    async with AsyncClient(url, os.environ.get("STAFFETTA_KEY", "")) as staffetta:
        results = await staffetta.send_batch(
            [letter(address, issue) for address in addresses], idempotency_key=f"newsletter-{issue}"
        )
    wrong = 0
    for address, result in zip(addresses, results, strict=True):
        if not isinstance(result, Receipt):
            wrong += 1
            print(f"{address!r}: {result}")
    print(f"{len(results) - wrong} kept, {wrong} refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], sys.stdin.read().split())))

"""An outsider's tool reads the OpenAPI document and tries to break what it promises: `schemathesis`, on a real
process with a real store behind it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doubles.shell import PATIENCE_SECONDS, Shell, program
from doubles.stocked import Clock, Stock
from staffetta.app import wiring
from staffetta.mail import keys
from staffetta.store.sqlite import SqliteStore

SEED = os.environ.get("STAFFETTA_SEED", "1")
EXAMPLES = os.environ.get("STAFFETTA_EXAMPLES", "40")
SETTINGS = """
# An address must be one, and the document's JSON Schema cannot say what that is: a body that fits the schema may
# still be refused, with the field named (the property tests of hand-in hold that).
[checks.positive_data_acceptance]
enabled = false

# A batch is taken, and its wrong items are named in their places: 202 is right for them.
[[operations]]
include-name = "POST /v1/emails/batch"
[operations.checks.negative_data_rejection]
enabled = false
"""


async def stocked(path: Path) -> str:
    """A store with e-mails at every stage of their lives; a key that may do everything."""
    store, clock = SqliteStore(path), Clock(wiring.clock())
    await store.open()
    stock = Stock(store, clock)
    await stock.alive("w1")
    for number in range(20):
        company_id = f"company-{number % 3}"
        await stock.failed(company_id)
        await stock.in_doubt(company_id)
        await stock.sent(company_id)
        await stock.processing(await stock.ready(company_id), "w1")
    text, stored = keys.make(random=os.urandom(32), role="operate", company_id=None, now=clock(), note="")
    await store.add_key(stored)
    await store.close()
    return text


@pytest.mark.timeout(180)
def test_every_call_keeps_to_the_document_whatever_it_is_sent(tmp_path: Path) -> None:
    """No 5xx, no undocumented status, no answer outside its schema, nothing taken that the schema forbids, no
    call without its key; also along the links from one answer to the next call."""
    key = asyncio.run(stocked(tmp_path / "staffetta.db"))
    tool = tmp_path / "tool"
    tool.mkdir()
    (tool / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    shell = Shell(tmp_path, STAFFETTA_LISTEN="127.0.0.1:0")
    with program(shell, "api") as api:
        url = api.told("Staffetta is ready")["api"]
        done = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json",
                "--header", f"Authorization: Bearer {key}", "--seed", SEED, "--max-examples", EXAMPLES,
                "--generation-database", "none", "--continue-on-failure",
            ],
            cwd=tool, capture_output=True, text=True, timeout=5 * PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    said = f"STAFFETTA_SEED={SEED}\n{done.stdout}{done.stderr}"
    assert done.returncode == 0, said
    assert not [line for line in api.heard if "fault of ours" in line], api.heard
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested, said
    assert int(tested[1]) >= 26, said
    assert "Stateful (disabled)" not in done.stdout, said

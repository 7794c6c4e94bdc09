"""Each part of the runbook against a system that is in that state: every command is typed, and the cure cures.

The commands are read from the page itself; a block that is not typed by any test is a failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doubles import engines, pages, redis
from doubles.disks import small_disk
from doubles.pages import ROOT, Block, Reader
from doubles.shell import PATIENCE_SECONDS, Program, Shell

RUNBOOK = ROOT / "docs" / "operating" / "runbook.md"
BLOCKS = [block for block in pages.blocks(RUNBOOK) if block.option("incident")]
INCIDENTS = {block.option("incident") for block in BLOCKS}


def _blocks(incident: str, after: str | None) -> list[Block]:
    return [b for b in BLOCKS if (b.option("incident"), b.option("after")) == (incident, after)]


@dataclasses.dataclass
class Site:
    """One installation in its own folder: settings, `serve`, a relay that can be told to misbehave."""

    reader: Reader
    shell: Shell
    relay_port: int
    programs: list[Program] = dataclasses.field(default_factory=list)
    serving: Program | None = None
    relay: Program | None = None

    def relays(self, script: str = "", *, stop: bool = True) -> None:
        """The relay begins anew with this script."""
        if stop and self.relay is not None:
            self.relay.stop()
        path = self.shell.folder / "relay.toml"
        path.write_text(script)
        log = str(self.shell.folder / "relay.log")
        port = str(self.relay_port)
        self.relay = Program(self.shell, "sink", "--port", port, "--script", str(path), "--log", log)
        self.relay.line(lambda line: line.strip().isdigit())

    def away(self) -> None:
        assert self.relay is not None
        self.relay.stop()
        self.relay = None

    def serves(self, settings: str = "", *, transport: str = "", **variables: str) -> None:
        """`serve` (begun again where it ran) on these settings."""
        if self.serving is not None:
            assert self.serving.stop() == 0
        url = transport or f"smtp://127.0.0.1:{self.relay_port}?tls=none#relay"
        (self.shell.folder / "staffetta.toml").write_text(f'[transport]\nurl = "{url}"\n{settings}')
        self.shell.environment.update(variables)
        self.serving = Program(self.shell, "serve")
        self.serving.told("Staffetta is ready")

    def sends(self, count: int, *, domain: str = "example.org", **more: Any) -> list[str]:
        rows = [
            {"from": "us@example.com", "to": f"user{n}@{domain}", "subject": f"{n}", "body_text": "hello", **more}
            for n in range(count)
        ]  # fmt: skip
        lines = "\n".join(json.dumps(row) for row in rows)
        return self.shell.process("send", "--jsonl", "-", stdin=lines).lines

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.shell.process("status", "--json").json
        return found

    def runs(self, command: list[str]) -> str:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        ).stdout

    def firing(self) -> set[str]:
        return {row["name"] for row in self.shell.process("alerts", "--json").json if row["state"] == "firing"}

    def types(self, incident: str, after: str | None = None, **names: str) -> str:
        """Type every block of this part of the page, in order; all that was said."""
        said = []
        blocks = _blocks(incident, after)
        assert blocks, f"the runbook has nothing to type for {incident} {after or ''}"
        for block in blocks:
            text = block.text
            for name, value in names.items():
                text = text.replace(name, value)
            words = tuple(word.replace("_", " ") for word in block.words if not word.startswith("incident="))
            said.append(self.reader.typed(Block(block.language, ("run", *words), text, block.line)))
        return "\n".join(said)

    def end(self) -> None:
        for program in (self.serving, self.relay, *self.programs):
            if program is not None:
                program.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    reader = Reader(tmp_path)
    made = Site(reader=reader, shell=reader.shell, relay_port=engines.free_port())
    try:
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def receiver_at(port: int) -> Iterator[None]:
    """An owner that acknowledges every call."""

    class Owner(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Owner)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(true: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < ends, f"never: {what}"
        time.sleep(0.1)


def test_every_block_of_the_page_is_typed_by_a_test() -> None:
    """A part added without a test would be believed at three in the morning."""
    told = Path(__file__).read_text(encoding="utf-8")
    assert INCIDENTS == {name for name in INCIDENTS if name and f'"{name}"' in told}
    unmarked = [b.line for b in pages.blocks(RUNBOOK) if b.language == "sh" and not b.option("incident")]
    assert len(unmarked) == 1, "only the first look stands without an incident"


def test_dead_letters_grow(site: Site) -> None:
    site.relays('[[rule]]\nat = "rcpt"\nrecipient = "*@gone.example"\nreply = "550 5.1.1 No such user"\n')
    site.serves()
    ids = site.sends(110, domain="gone.example", company_id="acme")
    until(lambda: "dlq-size" in site.firing(), "the alert for many dead letters")
    site.relays()  # what made them fail is mended
    said = site.types("dead-letters-grow", ID=ids[0])
    assert "550|110" in said
    assert "acme|110" in said
    assert "No such user" in said
    until(lambda: site.status()["emails"]["SENT"] == 110, "all are sent")
    until(lambda: not site.firing() & {"dlq-size", "dlq-company"}, "the alerts are over")
    assert 0 == site.status()["dlq"]["size"]


def test_one_company_fills_the_queue(site: Site) -> None:
    site.relays('[[rule]]\nat = "dot"\ndelay_ms = 40\n')
    site.serves("connections = 4\n[delivery]\nconcurrency = 4\n")
    site.sends(1_500, company_id="flood-inc")
    until(lambda: "flood-inc" in site.shell.process("tenants").out, "its figures are shown")
    (tenants, change, resume) = _blocks("one-company-fills-the-queue", None)
    assert "flood-inc" in site.reader.typed(tenants)
    site.reader.typed(change)
    until(
        lambda: [0.2] == [row["weight"] for row in site.shell.process("tenants", "--json").json
                          if row["companyId"] == "flood-inc"],
        "its weight",
    )  # fmt: skip
    others = site.sends(20, company_id="acme")
    until(
        lambda: {"SENT"} == {site.shell.process("show", id, "--json").json["status"] for id in others[-3:]},
        "the others are sent",
    )  # fmt: skip
    time_paused = site.status()["queue"]["waiting"]
    assert time_paused > 0
    site.reader.typed(resume)
    until(lambda: site.status()["queue"]["waiting"] < time_paused, "it goes on")


def test_provider_down(site: Site) -> None:
    site.relays()
    site.serves()
    site.away()
    site.sends(50)
    until(lambda: "breaker-open" in site.firing(), "the alert")
    said = site.types("provider-down")
    assert "refused" in said
    site.relays()
    site.types("provider-down", "mended")
    until(lambda: site.status()["emails"]["SENT"] == 50, "all are sent")
    assert 0 == site.status()["dlq"]["size"]


def test_wrong_password(site: Site) -> None:
    site.relays('credentials = { "us" = "right" }\nauth_required = true\n')
    site.serves(transport=f"smtp://us:wrong@127.0.0.1:{site.relay_port}?tls=none#relay")
    site.sends(50)
    until(lambda: "breaker-open" in site.firing(), "the alert")
    said = site.types("wrong-password")
    assert "535" in said
    assert "HOLD" in said
    site.serves(transport=f"smtp://us:right@127.0.0.1:{site.relay_port}?tls=none#relay")
    site.types("wrong-password", "mended")
    until(lambda: site.status()["emails"]["SENT"] == 50, "all are sent")
    assert 0 == site.status()["dlq"]["size"]


def test_e_mails_in_doubt(site: Site) -> None:
    site.relays('[[rule]]\nat = "dot"\naccept = true\ndisconnect = true\ncount = 2\n')
    site.serves('[delivery]\nin_doubt = "hold"\n')
    first, second = site.sends(2)
    until(lambda: "in-doubt" in site.firing(), "the alert")
    until(lambda: site.status()["dlq"]["size"] == 2, "both wait for a decision")
    said = site.types("e-mails-in-doubt", ID=first, OTHER=second)
    assert first in said
    until(lambda: site.status()["emails"]["SENT"] == 2, "both are SENT")
    until(lambda: "in-doubt" not in site.firing(), "the alert is over")
    taken = [json.loads(line) for line in (site.shell.folder / "relay.log").read_text().splitlines()]
    assert 3 == len(taken), "only the one that was to go again went again"
    assert 2 == len({one["message_id"] for one in taken})


def test_callback_receiver_down(site: Site) -> None:
    site.relays()
    receiver = engines.free_port()
    site.serves(f'[callback]\nurl = "http://127.0.0.1:{receiver}/"\n')
    ids = site.sends(12)
    until(lambda: "callbacks-failing" in site.firing(), "the alert")
    until(lambda: site.status()["emails"]["CALLING-SENT-CALLBACK"] == 12, "they stay")
    said = site.types("callback-receiver-down", ID=ids[0])
    assert ids[0] in said
    with receiver_at(receiver):
        site.types("callback-receiver-down", "mended", ID=ids[0])
        until(
            lambda: site.shell.process("show", ids[0], "--json").json["status"] == "SENT-ACKNOWLEDGED",
            "its owner knows",
        )


@pytest.mark.service
def test_store_full(site: Site) -> None:
    with small_disk(site.shell.folder / "disk", megabytes=24) as disk:
        site.relays()
        site.serves(f'[store]\nurl = "sqlite:///{disk.path / "outbox.db"}"\n')
        site.sends(20)
        until(lambda: site.status()["emails"]["SENT"] == 20, "all is well at first")
        disk.fill()
        body = json.dumps(
            {"from": "us@example.com", "to": "a@example.org", "subject": "1", "body_text": "x" * 9_000}
        )
        post = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--json", body]
        url = f"http://{site.shell.environment['STAFFETTA_LISTEN']}/v1/emails"
        until(lambda: site.runs([*post, url]) == "503", "a caller hears that it is full")
        until(lambda: site.runs(["curl", "-sS", url.replace("v1/emails", "readyz")]).count("down"), "not ready")
        assert "disk" in site.types("store-full")
        disk.make_room()
        until(lambda: site.runs([*post, url]) == "202", "hand-in goes on by itself")
        site.types("store-full", "mended")
        until(lambda: site.status()["emails"]["SENT"] >= 21, "and it is sent")


@pytest.mark.service
def test_redis_near_its_limit(site: Site) -> None:
    with redis.running(site.shell.folder, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction") as server:
        client = engines.program("redis-cli", package="redis-tools")
        command = site.shell.folder.parent / "bin" / "redis-cli"
        command.write_text(f'#!/bin/sh\nexec {client} -p {server.port} "$@"\n')
        command.chmod(0o755)
        site.relays()
        site.serves(f'[queue]\nurl = "{server.url}"\n')
        site.shell.process("pause")
        site.sends(300, company_id="acme")
        # It is to be nearly full, not to take all of this.
        with server.client() as stranger, contextlib.suppress(Exception):
            for number in range(40):
                stranger.set(f"somebody-else:{number}", "x" * 65_536)
        until(lambda: {"redis-memory-80", "redis-memory-90"} <= site.firing(), "the alerts")
        said = site.types("redis-near-its-limit")
        assert "maxmemory_human" in said
        assert "300" in said
        until(lambda: not site.firing() & {"redis-memory-80", "redis-memory-90"}, "the alerts are over")
        site.shell.process("resume")
        until(lambda: site.status()["emails"]["SENT"] == 300, "all are sent")

"""Canaries through a whole engine: what is secret or somebody's own stands in no log, metric, page or listing."""

from __future__ import annotations

import base64
import json
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from doubles.shell import Program, Shell, program

PASSWORD = "canarypassword"
KEY_OF_CALLS = base64.b64encode(b"canarysecretcanarysecretcanary!!").decode()
OWN_KEY_OF_CALLS = base64.b64encode(b"canaryofacmecanaryofacmecanary!!").decode()
PATH_OF_CALLS = "canarypath"
BODY, SUBJECT, FILE = "canarybody", "canarysubject", "canaryfilecontent"
ADDRESS = "canaryrecipient"
DOMAIN = "canarydomain"

SECRETS = (PASSWORD, KEY_OF_CALLS, OWN_KEY_OF_CALLS)
CONTENTS = (BODY, SUBJECT, FILE, base64.b64encode(FILE.encode()).decode(), "canarymeta", "canaryheader")
PEOPLE = (ADDRESS, DOMAIN)


def payload(company: str, local: str) -> bytes:
    return json.dumps({
        "company_id": company, "from": f"canarysender@{DOMAIN}.example", "to": f"{local}@{DOMAIN}.example",
        "subject": SUBJECT, "body_text": BODY, "body_html": f"<p>{BODY}</p>", "metadata": {"note": "canarymeta"},
        "custom_headers": {"X-Note": "canaryheader"},
        "attachments": [{"name": "a.txt", "content": base64.b64encode(FILE.encode()).decode()}],
    }).encode()  # fmt: skip


def ask(url: str, path: str, body: bytes | None = None, key: str = "") -> tuple[int, str]:
    headers = {"Content-Type": "application/json"} if body else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, body, headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


class _Refusing(BaseHTTPRequestHandler):
    """A receiver of callbacks that is in trouble."""

    def do_POST(self) -> None:
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def calls() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


RELAY = f"""
credentials = {{ "user" = "{PASSWORD}" }}
auth_required = true

[[rule]]
at = "rcpt"
recipient = "gone*@*"
reply = "550 5.1.1 <gone{ADDRESS}@{DOMAIN}.example> no such user"

[[rule]]
at = "rcpt"
recipient = "grey*@*"
reply = "451 4.7.1 greylisted"

[[rule]]
at = "data"
recipient = "drop*@*"
disconnect = true
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    (tmp_path / "relay.toml").write_text(RELAY)
    return shell


def test_nothing_secret_or_private_gets_out(shell: Shell, calls: str) -> None:
    """Deliveries, refusals, retries, broken lines, callbacks that fail, wrong keys, wrong payloads, wrong settings."""
    seen: dict[str, str] = {}
    with program(shell, "sink", "--port", "0", "--script", "relay.toml") as relay:
        port = relay.line(lambda line: line.strip().isdigit()).strip()
        (shell.folder / "staffetta.toml").write_text(
            f'[transport]\nurl = "smtp://user:{PASSWORD}@127.0.0.1:{port}?tls=none#relay"\n'
            f'[callback]\nurl = "{calls}/{PATH_OF_CALLS}"\nsecret = "whsec_{KEY_OF_CALLS}"\n'
            f'[companies."acme"]\ncallback_secret = "whsec_{OWN_KEY_OF_CALLS}"\n[log]\nlevel = "debug"\n'
            '[api]\nlisten = "127.0.0.1:0"\n'
        )
        key = shell("keys", "create", "--role", "operate", "--all-companies").lines[0]
        serving = Program(shell, "serve")
        try:
            url = str(serving.told("Staffetta is ready")["api"])
            for local in (ADDRESS, f"gone{ADDRESS}", f"grey{ADDRESS}", f"drop{ADDRESS}"):
                for company in ("acme", "bistro"):
                    assert 202 == ask(url, "/v1/emails", payload(company, local), key)[0]
            serving.told("Job failed permanently")
            serving.told("Job failed permanently")
            serving.told("Callback refused")
            seen["wrong payload"] = ask(url, "/v1/emails", payload("", "nobody @ x"), key)[1]
            seen["wrong json"] = ask(url, "/v1/emails", payload("a", "b")[:-5], key)[1]
            seen["wrong key"] = ask(url, "/v1/emails", payload("acme", ADDRESS), key[:-1])[1]
            for path in (
                "/metrics",
                "/readyz",
                "/healthz",
                "/docs",
                "/openapi.json",
                "/v1/tenants",
                "/v1/alerts",
            ):
                seen[path] = ask(url, path, key=key)[1]
            seen["/v1/dlq"] = ask(url, "/v1/dlq", key=key)[1]
            for words in (
                ["status"],
                ["list"],
                ["dlq", "list"],
                ["dlq", "stats"],
                ["doctor"],
                ["tenants"],
                ["keys", "list"],
            ):
                said = shell(*words)
                seen[" ".join(words)] = said.out + said.err
            first = shell("list", "--json").json["emails"][0]["id"]
            seen["show"] = shell("show", first).out
        finally:
            serving.stop(signal.SIGTERM)
        seen["log"] = "".join(serving.heard)
    for name in ("url", "secret"):
        bad: dict[str, Any] = {f"STAFFETTA_CALLBACK__{name.upper()}": f"whsec_{PASSWORD}!"}
        seen[f"wrong {name}"] = shell("status", code=2, **bad).err
    wrong = f"smtp://user:{PASSWORD}@127.0.0.1:nowhere"
    seen["wrong transport"] = shell("status", code=2, STAFFETTA_TRANSPORT=wrong).err

    assert "Job sent" in seen["log"]
    assert "scheduling retry" in seen["log"]
    for where, text in seen.items():
        for canary in (*SECRETS, key, key[3:]):
            assert canary not in text, f"{where} tells {canary}"
        assert PATH_OF_CALLS not in text or where == "doctor", (
            "only who asks for the settings sees the whole address"
        )
        for canary in CONTENTS:
            assert canary not in text, f"{where} tells {canary}"
    for where in (
        "log",
        "/metrics",
        "/readyz",
        "/docs",
        "status",
        "dlq stats",
        "doctor",
        "tenants",
        "wrong key",
    ):
        for canary in PEOPLE:
            assert canary not in seen[where], f"{where} tells {canary}:\n{seen[where]}"

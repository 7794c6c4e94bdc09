"""A disk that is full, for a whole service: hand-in is refused with 503, nothing is half written, and it goes on by
itself when there is room. The kernel refuses the writes (RLIMIT_FSIZE), as a full disk would."""

from __future__ import annotations

import json
import resource
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from doubles import shell as shells
from doubles.shell import Shell

PAYLOAD = {"from": "shop@example.com", "to": "ada@example.org", "subject": "Hello", "body_text": "x" * 20_000}
LARGE = {**PAYLOAD, "body_text": "x" * 400_000}


def hand_in(url: str, body: Any, key: str = "") -> tuple[int, Any]:
    path = "/v1/emails/batch" if isinstance(body, list) else "/v1/emails"
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def limit_files(pid: int, most_bytes: int) -> None:
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, hard))


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="needs Linux, to fill the disk of one process only"
)
def test_a_full_disk_refuses_hand_in_and_loses_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shells.program(shell, "api", STAFFETTA_LISTEN="127.0.0.1:0") as service:
        url = str(service.told("Staffetta is ready")["api"])
        before = [hand_in(url, PAYLOAD, f"before-{n}") for n in range(5)]
        assert {202} == {status for status, _ in before}

        limit_files(service.pid, 1)
        refused = [hand_in(url, body) for body in (PAYLOAD, [PAYLOAD] * 20, LARGE, [LARGE])]
        assert [503] * 4 == [status for status, _ in refused], refused
        assert all("problem" not in said or said["status"] == 503 for _, said in refused)
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as alive:
            assert 200 == alive.status
        again = [hand_in(url, PAYLOAD, f"before-{n}") for n in range(5)]

        limit_files(service.pid, resource.RLIM_INFINITY)
        after = [hand_in(url, PAYLOAD), hand_in(url, [PAYLOAD] * 20), hand_in(url, LARGE)]
        assert {202} == {status for status, _ in after}, after
        known = [hand_in(url, PAYLOAD, f"before-{n}") for n in range(5)]
        assert [said["id"] for _, said in before] == [said["id"] for _, said in known]
        assert all(
            said.get("id") in (None, first["id"]) for (_, said), (_, first) in zip(again, before, strict=True)
        )

    counts = shell("status", "--json").json["emails"]
    assert {27} == {counts["READY"], sum(counts.values())}, "5 before, 1, 20 and 1 after; none of those refused"
    named = {shell("show", one["id"], "--json").json["eml_file_path"] for one in _listed(shell)} - {None}
    whole = {str(path) for path in (tmp_path / "spool").rglob("*.eml")}
    assert whole == named, "no file that nobody names, and none in parts"
    assert not list((tmp_path / "spool").rglob("*.part"))


def _listed(shell: Shell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell("list", "--json", "--limit", "100").json["emails"]
    return found

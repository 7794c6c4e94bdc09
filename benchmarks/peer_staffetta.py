"""Staffetta for an outside harness that runs job queues side by side: a table of functions, one a workload.

    PEERS_EXTRA=benchmarks/peer_staffetta.py python run.py bullmq-node staffetta staffetta-ready --reps 3

The harness names functions by workload in `PEERS`; each takes a number of jobs and returns one row of figures.
It brings `common` (a sink, job files, sampling) and `relay` (a sink that notes times). `staffetta` starts from
payloads (reads, checks, composes, sends); `staffetta-ready` from e-mails that were composed at hand-in.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import relay

HOME = Path(__file__).resolve().parent.parent
PYTHON = str(HOME / ".venv" / "bin" / "python")

_FILL = """
import asyncio, json, sys, time
from pathlib import Path
from benchmarks import parts
from staffetta.app import wiring
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import HistoryEntry, NewEmail

async def fill(folder, file, composed):
    config = parts.settings(Path(folder), port=1)
    store = wiring.store_for(config, owner=True)
    await store.open()
    jobs = [json.loads(line) for line in open(file)]
    texts = [{"id": j["id"], "company_id": j["tenant"], "from": j["from"], "to": j["to"],
              "subject": j["subject"], "body_html": j["html"], "custom_headers": {"X-Tenant": j["tenant"]}}
             for j in jobs]
    started = time.monotonic()
    if composed:
        desk = wiring.desk_for(config, store=store, rulebook=wiring.rulebook_for(config),
                               emit=lambda event: None, queue=None, spool=wiring.spool_for(config))
        for start in range(0, len(texts), 500):
            for answer in await desk.accept_batch(json.dumps(texts[start:start + 500]).encode()):
                if isinstance(answer, Exception):
                    raise answer
    else:
        now = wiring.clock()
        first = HistoryEntry(status=Status.ACCEPTED, cause=Cause.ACCEPTED, reason="", at=now)
        emails = [NewEmail(id=t["id"], company_id=t["company_id"], history=(first,), created_at=now, due_at=now,
                           expires_at=now + 86_400_000, payload=json.dumps(t).encode()) for t in texts]
        for start in range(0, len(emails), 500):
            await store.add(emails[start:start + 500])
    print(json.dumps({"enqueue_s": time.monotonic() - started}))
    await store.close()

asyncio.run(fill(sys.argv[1], sys.argv[2], sys.argv[3] == "composed"))
"""


def _fill(folder: Path, file: str, how: str) -> dict[str, Any]:
    command = [PYTHON, "-c", _FILL, str(folder), file, how]
    ended = subprocess.run(command, cwd=HOME, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return told


def _environment(folder: Path, port: int) -> dict[str, str]:
    return {
        "STAFFETTA_STORE": f"sqlite:///{folder / 'outbox.db'}",
        "STAFFETTA_TRANSPORT": f"smtp://127.0.0.1:{port}?tls=none#sink",
        "STAFFETTA_SPOOL__PATH": str(folder / "spool"),
        "STAFFETTA_LOG__LEVEL": "error",
    }


def _start(folder: Path, port: int, *arguments: str, **more: str) -> common.Proc:
    log = (folder / "worker.log").open("wb")
    environment = {**_environment(folder, port), **more}
    return common.Proc([PYTHON, "-m", "staffetta", *arguments], env=environment, cwd=str(folder), out=log)


def _sent(folder: Path) -> int:
    with sqlite3.connect(f"file:{folder / 'outbox.db'}?mode=ro", uri=True) as opened:
        return int(opened.execute("SELECT total FROM statuses WHERE name = 'SENT'").fetchone()[0])


def _first_claim(folder: Path) -> float:
    with sqlite3.connect(f"file:{folder / 'outbox.db'}?mode=ro", uri=True) as opened:
        found = opened.execute("SELECT min(at) FROM journal WHERE token IS NOT NULL").fetchone()[0]
        return float(found) / 1e3


def _until_sent(folder: Path, count: int, sampler: common.Sampler | None = None, seconds: float = 240.0) -> int:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if sampler is not None:
            sampler.sample()
        if _sent(folder) == count:
            return time.monotonic_ns()
        time.sleep(0.03)
    raise RuntimeError(f"{_sent(folder)} of {count} sent")


def _drain(count: int, how: str) -> dict[str, Any]:
    file, count = common.job_file("w1", count)
    with tempfile.TemporaryDirectory(prefix="peer-staffetta-", dir="/var/tmp") as name:
        folder = Path(name)
        found = _fill(folder, file, how)
        size = (folder / "outbox.db").stat().st_size
        sink = common.Sink()
        try:
            launched = time.time()
            worker = _start(folder, sink.port, "work")
            sampler = common.Sampler({"worker": [worker.pid], "sink": [sink.proc.pid]})
            try:
                ended = _until_sent(folder, count, sampler)
                sampler.finish()
                first = _first_claim(folder)
                began = time.monotonic_ns() - round((time.time() - first) * 1e9)
            finally:
                worker.stop(timeout=30)
            spent = (ended - began) / 1e9
            return {
                **found,
                "bytes_per_job": size / count,
                "rate": count / spent,
                "wall_s": spent,
                "startup_s": first - launched,
                "cpu_ms_per_mail": sampler.cpu_between(began, ended, "worker") / count * 1000,
                "sink_cpu_ms": sampler.cpu_between(began, ended, "sink") / count * 1000,
                "rss_mb": sampler.peak["worker"],
                "sent": count,
                "unique": count,
                "sink": sink.count(),
            }
        finally:
            sink.stop()


def _latency(count: int) -> dict[str, Any]:
    """3,000 jobs by HTTP at 200/s, open loop; from the call to the reply of a sink that notes the time."""
    warm, file = common.job_file("warm", 400)[0], common.job_file("w2", 3000)[0]
    with tempfile.TemporaryDirectory(prefix="peer-staffetta-", dir="/var/tmp") as name:
        folder = Path(name)
        port, log = common.free_port(), str(folder / "sink.log")
        sink = relay.tool("sink", port, log)
        try:
            common.wait_port(port)
            listen = f"127.0.0.1:{common.free_port()}"
            server = _start(folder, port, "serve", STAFFETTA_LISTEN=listen)
            try:
                common.wait_port(int(listen.rpartition(":")[2]))
                for jobs, rate in ((warm, 200.0), (file, 200.0)):
                    subprocess.run(
                        [PYTHON, "-c", _TRICKLE, f"http://{listen}/v1/emails", jobs, str(rate)],
                        check=True,
                        cwd=HOME,
                    )
                while len(relay.lines(log)) < 3400:
                    time.sleep(0.1)
            finally:
                server.stop(timeout=30)
            waits = sorted((ended - begun) / 1e6 for ended, begun, _ in relay.lines(log)[400:])
        finally:
            sink.stop()
    share = {f"p{part}": waits[len(waits) * part // 100] for part in (50, 95, 99)}
    return {**share, "max": waits[-1], "n": len(waits)}


_TRICKLE = """
import asyncio, json, sys, time
import aiohttp

async def trickle(url, file, rate):
    jobs = [json.loads(line) for line in open(file)]
    async with aiohttp.ClientSession() as session:
        async def one(j):
            begun = time.monotonic_ns()
            body = {"company_id": j["tenant"], "from": j["from"], "to": j["to"], "subject": j["subject"],
                    "body_html": j["html"], "custom_headers": {"X-T0": str(begun), "X-Tenant": j["tenant"]}}
            async with session.post(url, json=body) as answer:
                assert answer.status == 202, await answer.text()
        started, tasks = time.monotonic(), []
        for number, job in enumerate(jobs):
            ahead = started + number / rate - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            tasks.append(asyncio.ensure_future(one(job)))
        await asyncio.gather(*tasks)

asyncio.run(trickle(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


def _fairness(count: int) -> dict[str, Any]:
    """5,000 jobs of one company, then ten each of twenty: at which place is the last of these sent?"""
    file, total = common.job_file("w3")
    with tempfile.TemporaryDirectory(prefix="peer-staffetta-", dir="/var/tmp") as name:
        folder = Path(name)
        _fill(folder, file, "composed")
        port, log = common.free_port(), str(folder / "sink.log")
        sink = relay.tool("sink", port, log)
        try:
            common.wait_port(port)
            worker = _start(folder, port, "work")
            try:
                _until_sent(folder, total)
            finally:
                worker.stop(timeout=30)
            order = [tenant for _, _, tenant in relay.lines(log)]
        finally:
            sink.stop()
    small = [place for place, tenant in enumerate(order, 1) if tenant != "A"]
    return {"first_small": small[0], "last_small": small[-1], "small": len(small), "total": len(order)}


PEERS = {
    "staffetta": {"w1": lambda count: _drain(count, "accepted"), "w2": _latency, "w3": _fairness},
    "staffetta-ready": {"w1": lambda count: _drain(count, "composed")},
}

if __name__ == "__main__":
    sys.exit(__doc__)

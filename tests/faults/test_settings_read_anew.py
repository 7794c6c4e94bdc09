"""SIGHUP: new settings without a lost e-mail, and wrong ones change nothing."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

from doubles import shell as shells
from doubles.shell import Shell

ROW = {"from": "us@example.com", "subject": "hello", "body_text": "hello"}


def send(shell: Shell, *names: str) -> None:
    lines = "\n".join(json.dumps({**ROW, "to": f"{name}@example.org"}) for name in names)
    shell.process("send", "--jsonl", "-", stdin=lines)


def test_settings_are_read_anew_and_wrong_ones_change_nothing(tmp_path: Path) -> None:
    """An operator who mistypes at night must not stop the sending with it."""
    shell = Shell(tmp_path)
    file, log = tmp_path / "staffetta.toml", tmp_path / "relay.log"
    with shells.sink(shell, "--log", str(log)) as (transport, _):
        file.write_text(f'[transport]\nurl = "{transport}"\n')
        with shells.serve(shell) as (_, running):
            send(shell, "one")
            running.told("Job sent")
            file.write_text(f'[transport]\nurl = "{transport}"\n[retry]\npolicy = "never"\n')
            running.receives(signal.SIGHUP)
            told = running.told("The settings are wrong; those in force stay")
            assert "retry.policy" in told["problems"]
            file.write_text(f'[transport]\nurl = "{transport}"\n')  # commands read the file as well
            send(shell, "two")
            running.told("Job sent")
            file.write_text(f'[transport]\nurl = "{transport}"\n[retry]\npolicy = "patient"\n')
            running.receives(signal.SIGHUP)
            running.told("The settings were read anew; beginning again")
            url = running.told("Staffetta is ready")["api"]
            send(shell, "three")
            assert 3 == running.told("Job sent")["maxAttempts"], "the new policy holds"
            with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
                assert "ok" == json.load(answer)["status"]
    taken = [json.loads(line)["recipients"] for line in log.read_text().splitlines()]
    assert [["one@example.org"], ["two@example.org"], ["three@example.org"]] == taken

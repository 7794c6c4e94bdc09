"""The programs of `examples/` do what their pages say, against a real engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles import shell as shells
from doubles.pages import ROOT
from doubles.shell import PATIENCE_SECONDS, Program, Shell

pytestmark = pytest.mark.xdist_group("examples")
"""One service for all of them: they share it, and its process."""

EXAMPLES = ROOT / "examples"
SECRET = "whsec_c2VjcmV0IG9mIHRoZSBleGFtcGxlcywgb25seSBoZXJl"


class _Python(Shell):
    """Runs Python files where the shell runs commands."""

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-u", *args]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module")
def receiver(shell: Shell) -> Iterator[tuple[str, Program]]:
    """The example that hears, at work."""
    running = Program(_Python(shell.folder, CALLBACK_SECRET=SECRET), str(EXAMPLES / "receiver.py"), "0")
    try:
        yield running.line(lambda line: line.startswith("receiving at ")).split()[-1], running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def api(shell: Shell, receiver: tuple[str, Program]) -> Iterator[str]:
    settings = {"STAFFETTA_CALLBACK_URL": receiver[0], "STAFFETTA_CALLBACK__SECRET": SECRET}
    with (
        shells.sink(shell) as (transport, _),
        shells.serve(shell, STAFFETTA_TRANSPORT=transport, **settings) as (url, _),
    ):
        yield url


def run(name: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip


def test_an_order_is_told_once_however_often_it_is_run(api: str) -> None:
    """The key says what the e-mail is for: the second run finds the first one's."""
    first, second = (run("order_paid.py", api, "ada@example.org", "4711") for _ in range(2))

    assert (0, 0) == (first.returncode, second.returncode), first.stderr + second.stderr
    assert first.stdout.splitlines()[0] == second.stdout.splitlines()[0]
    assert "SENT" in first.stdout
    assert "ada@example.org: accepted 250" in first.stdout


def test_a_wrong_order_names_its_fields(api: str) -> None:
    wrong = run("order_paid.py", api, "nobody", "4712")

    assert 2 == wrong.returncode
    assert wrong.stdout.startswith("to: is not an e-mail address")


def test_a_newsletter_keeps_the_right_ones_and_may_be_run_again(api: str) -> None:
    addresses = "one@example.org two@example.org nonsense three@example.org"
    first, second = (run("newsletter.py", api, "2026-11", stdin=addresses) for _ in range(2))

    assert (1, 1) == (first.returncode, second.returncode)
    assert "'nonsense': to: is not an e-mail address" in first.stdout
    assert "3 kept, 1 refused" in first.stdout
    assert first.stdout == second.stdout


def test_the_receiver_hears_of_what_was_sent_and_believes_nobody_else(
    api: str, receiver: tuple[str, Program]
) -> None:
    """Signed calls are dealt with; one without a signature is answered 401."""
    import urllib.error
    import urllib.request

    url, heard = receiver
    done = run("order_paid.py", api, "grace@example.org", "4713")
    email = done.stdout.split()[0]

    assert "Delivered to the mail server" in heard.line(lambda line: line.startswith(f"{email} sent at"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST"), timeout=10)
    assert 401 == refused.value.code
    refused.value.close()


def test_the_page_of_examples_names_each_program() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    assert all(f"({program.name})" in page for program in EXAMPLES.glob("*.py"))


def test_examples_are_files_of_this_folder_only() -> None:
    """Nothing in them reaches into Staffetta beyond its public names."""
    for program in Path(EXAMPLES).glob("*.py"):
        lines = program.read_text(encoding="utf-8").splitlines()
        imported = [line for line in lines if line.startswith(("from staffetta", "import staffetta"))]
        allowed = ("from staffetta import ", "from staffetta.client import ", "from staffetta.errors import ")
        assert all(line.startswith(allowed) for line in imported), program.name

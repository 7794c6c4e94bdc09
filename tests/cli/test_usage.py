"""Wrong usage and wrong settings: exit code 2, every wrong one named, the remedy beside it, and nothing done."""

from __future__ import annotations

import pytest

from doubles.shell import Shell
from staffetta.cli.main import COMMANDS


def test_every_wrong_setting_is_named_at_once(shell: Shell) -> None:
    """Who starts a service mends all of them in one go; source and remedy stand beside each."""
    (shell.folder / "staffetta.toml").write_text(
        '[store]\nurl = "mongo://x"\n[delivery]\nexpires_in = "soon"\n'
    )

    said = shell.process(
        "serve", code=2, STAFFETTA_LISTEN="nowhere", STAFFETTA_RETRY__POLICY="hasty", STAFFETTA_STOER="x"
    )

    for name in ("store.url", "delivery.expires_in", "api.listen", "retry.policy", "STAFFETTA_STOER"):
        assert f"  {name}: " in said.err
    assert "(from staffetta.toml)" in said.err
    assert "(from the environment variable STAFFETTA_LISTEN)" in said.err
    assert "did you mean STAFFETTA_STORE?" in said.err
    assert ["staffetta.toml"] == [path.name for path in shell.folder.iterdir()]


@pytest.mark.parametrize("command", ["serve", "work"])
def test_without_a_transport_nothing_is_served_and_the_remedy_is_said(shell: Shell, command: str) -> None:
    """There is no default: e-mails that go nowhere would be believed sent."""
    said = shell(command, code=2)

    assert "transport.url" in said.err
    assert "STAFFETTA_TRANSPORT=smtp://" in said.err
    assert [] == list(shell.folder.iterdir())


def test_a_settings_file_that_is_not_there_is_named(shell: Shell) -> None:
    """A mistyped `--config` must not run on the defaults."""
    said = shell("--config", "other.toml", "status", code=2)

    assert "other.toml: cannot be read" in said.err


def test_the_file_named_by_config_is_the_one_in_force(shell: Shell) -> None:
    """Two engines on one host differ by their file."""
    (shell.folder / "other.toml").write_text('[retry]\npolicy = "patient"\n')

    assert shell("--config", "other.toml", "backoff").out.startswith("patient: 3 attempts")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["explain"], "give the reply"),
        (["backoff", "--policy", "hasty"], "'hasty' is not one of"),
        (["list", "--status", "LOST"], "is not one of"),
        (["list", "--since", "yesterday"], "no length of time"),
        (["list", "--since", "2026-01-01T10:00:00"], "has no offset"),
        (["list", "--limit", "0"], "not in the range"),
        (["show"], "Missing argument 'ID'"),
        (["retry"], "name ids, or a filter"),
        (["dlq", "retry"], "name ids, a filter"),
        (["dlq", "resolve", "x"], "say --delivered"),
        (["dlq", "purge"], "--older-than"),
        (["dlq", "purge", "--older-than", "old"], "no length of time"),
        (["pause", "--transport", "a", "--company", "b"], "not both"),
        (["keys", "create", "--role", "send"], "--company ID or --all-companies"),
        (["keys", "create", "--role", "send", "--company", "a", "--all-companies"], "--company ID or"),
        (["tenants", "weight", "acme", "0"], "not in the range"),
        (["send"], "name a file"),
        (["send", "--jsonl", "-", "--to", "a@b.example"], "--jsonl takes whole payloads"),
        (["send", "missing.json"], "does not exist"),
        (["work", "--stages", "deliver,fly"], "fly named; there are"),
        (["sink", "--script", "missing.toml"], "--script"),
        (["serve", "--processes", "0"], "not in the range"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(shell: Shell, args: list[str], words: str) -> None:
    """Scripts tell their own mistakes (2) from an operation that failed (1)."""
    said = shell(*args, code=2)

    assert words in said.err
    assert not said.out


def test_the_overview_names_every_command_and_needs_none_of_their_parts(shell: Shell) -> None:
    """`staffetta --help` is the first thing that somebody types."""
    said = shell("--help")

    assert all(any(line.split()[:1] == [name] for line in said.lines) for name in COMMANDS)
    assert "0.1.0" in shell.process("--version").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(shell: Shell, name: str) -> None:
    """Each option has its words; the overview's line is not all there is."""
    said = shell(name, "--help")

    assert said.out.startswith(f"Usage: staffetta {name}")
    assert len(said.lines) > 4


def test_a_shell_can_complete_commands(shell: Shell) -> None:
    """The line that the documentation tells people to add does something."""
    script = shell.process(_STAFFETTA_COMPLETE="bash_source").out
    offered = shell.process(_STAFFETTA_COMPLETE="bash_complete", COMP_WORDS="staffetta st", COMP_CWORD="1")

    assert "_staffetta_completion" in script
    assert {"plain,status", "plain,store"} == set(offered.lines)


def test_a_copy_that_cannot_begin_copies_nothing_and_repeats_no_password(shell: Shell) -> None:
    """To a store of the same kind, or one that is not reached."""
    shell("status")
    said = shell("store", "copy", "sqlite:///staffetta.db", "sqlite:///other.db", code=1)
    assert "nothing was copied" in said.err

    said = shell("store", "copy", "sqlite:///staffetta.db", "mysql://user:secret@127.0.0.1:1/mail", code=1)
    assert "127.0.0.1" in said.err
    assert "secret" not in said.err

    said = shell("store", "copy", "sqlite:///nowhere.db", "sqlite:///other.db", code=2)
    assert "there is no file nowhere.db" in said.err

"""The page `docs/reference/cli.md`, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from staffetta.cli.main import staffetta

HEAD = """\
# The command line

`staffetta` and `python -m staffetta` are the same. Settings come from `staffetta.toml` (or `--config FILE`,
before the command) and the environment; see [settings.md](settings.md). A command works on the store itself,
whether `serve` runs or not, and what it changes takes effect within a second.

| exit code | means |
|---|---|
| 0 | done |
| 1 | the operation failed; standard error says why and what to do |
| 2 | wrong usage, settings or input; each wrong one is named, and nothing was done with it |

Every listing takes `--json`. Times are RFC 3339 in UTC; those you give need an offset, or are ages such as
`15m`, `24h`, `7d`. Long work shows a bar on a terminal and plain lines elsewhere, on standard error.

## Completion

Let your shell complete commands and options: add the line of your shell to its start-up file.

```sh
eval "$(_STAFFETTA_COMPLETE=bash_source staffetta)"     # ~/.bashrc
eval "$(_STAFFETTA_COMPLETE=zsh_source staffetta)"      # ~/.zshrc
_STAFFETTA_COMPLETE=fish_source staffetta | source      # ~/.config/fish/completions/staffetta.fish
```
"""


def reference() -> str:
    context = click.Context(staffetta, info_name="staffetta", max_content_width=100)
    return HEAD + "\n".join(line.rstrip() for line in _group(staffetta, context, level=2)) + "\n"


def _group(group: click.Group, context: click.Context, *, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield from _command(command, inner, level=level)
        if isinstance(command, click.Group):
            yield from _group(command, inner, level=level + 1)


def _command(command: click.Command, context: click.Context, *, level: int) -> Iterator[str]:
    yield ""
    yield f"{'#' * level} {context.command_path}"
    yield ""
    yield f"`{' '.join([context.command_path, *command.collect_usage_pieces(context)])}`"
    yield ""
    yield from cleandoc(command.help or "").splitlines()
    options = [one for one in command.params if isinstance(one, click.Option)]
    rows = [record for one in options if (record := one.get_help_record(context))]
    if rows:
        yield ""
        yield "| option | does |"
        yield "|---|---|"
        for names, words in rows:
            yield f"| `{_cell(names)}` | {_cell(words)} |"
    if command.epilog:
        yield from ("", "```text", *command.epilog.replace("\b\n", "").splitlines(), "```")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    import sys
    from pathlib import Path

    (Path(sys.argv[1]) / "cli.md").write_text(reference(), encoding="utf-8")

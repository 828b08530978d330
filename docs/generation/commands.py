"""The commands of `muster`, from their help."""

import inspect
from collections.abc import Iterator

import click

from generation.markdown import table
from muster.cli.commands import main


def commands() -> list[str]:
    """Every command with its options, in the order of the command line."""
    return list(_group(click.Context(main, info_name="muster")))


def _group(context: click.Context) -> Iterator[str]:
    assert isinstance(context.command, click.Group)
    for name, command in context.command.commands.items():
        below = click.Context(command, info_name=name, parent=context)
        yield from _group(below) if isinstance(command, click.Group) else _command(below)


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield from (f"### `{' '.join([context.command_path, *arguments])}`", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    options = [option for option in command.params if isinstance(option, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        rows = [(f"`{option}`", text) for option, text in records]
        yield from (*table(("option", "meaning"), rows), "")

"""`muster init`: makes a project for an aggregator, or an example."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status
from muster.emulator.run_folder.folder import shown


def _names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The examples whose names begin so, for the completion of the shell."""
    from muster.emulator.project.examples import examples

    return [example.name for example in examples() if example.name.startswith(begun)]


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--example",
    metavar="NAME",
    help="Write the scenario of an example, and what belongs to it.",
    shell_complete=_names,
)
@click.option("--list", "as_list", is_flag=True, help="List the examples, and make nothing.")
@failures_as_status
def init(folder: Path, example: str | None, as_list: bool) -> None:
    """Make a project in DIR (default: here) for an aggregator: a rule, its tests, a scenario and a
    README; or write an example. No file is overwritten."""
    from muster.cli.listing import lines_of, listed_examples
    from muster.emulator.project import make_example, make_project

    if as_list:
        click.echo(lines_of(listed_examples()))
        return
    files = make_project(folder) if example is None else make_example(example, folder)
    for file in files:
        click.echo(f"made {file}")
    if example is None:
        click.echo('try: pytest -m "not real_fleet"')
    else:
        click.echo(f"try: muster run {shown(folder / Path(example).name)}.toml")

"""`muster init`: makes a project for an aggregator."""

from pathlib import Path

import click

from muster.emulator.cli.options import failures_as_status


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@failures_as_status
def init(folder: Path) -> None:
    """Make a project in DIR (default: here) for an aggregator: a rule, its tests, a scenario and a
    README. No file is overwritten."""
    from muster.emulator.project import make_project

    for file in make_project(folder):
        click.echo(f"made {file}")
    click.echo('try: pytest -m "not real_fleet"')

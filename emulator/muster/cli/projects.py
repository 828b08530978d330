"""`muster init` and `muster flower`: make a project for an aggregator, an example, or a scenario
that runs a Flower app."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status, folder_option
from muster.cli.running import run
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


@click.command()
@click.argument("app", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--devices",
    type=click.IntRange(1, 100_000),
    required=True,
    metavar="N",
    help="The number of devices; each is a node of the app.",
)
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The scenario file to write; default APP.toml in this folder.",
)
@click.option(
    "--local",
    multiple=True,
    metavar="PATTERN",
    help='Arrays that stay on each device: --local "*.num_batches_tracked".',
)
@click.option("--no-run", is_flag=True, help="Only write the scenario.")
@folder_option("--out", "The run folder to create; default runs/NAME-TIME.")
@click.pass_context
@failures_as_status
def flower(
    context: click.Context,
    app: Path,
    devices: int,
    scenario: Path | None,
    local: tuple[str, ...],
    no_run: bool,
    out: Path | None,
) -> None:
    """Run the Flower app in the folder APP, with its own strategy: write a scenario, and run it.

    The app's rehearsal counts the examples of every device, which trains once for that.
    """
    from muster.emulator.project.flower_app import flower_scenario, write_scenario

    path = scenario or Path(f"{app.resolve().name}.toml")
    write_scenario(
        lambda: flower_scenario(app, devices, {"local_arrays": list(local)} if local else {}), path
    )
    click.echo(f"made {path}")
    if not no_run:
        context.invoke(run, scenario=path, out=out)

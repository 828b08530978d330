"""`muster flower`: runs a Flower app."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status, folder_option
from muster.cli.running import run


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

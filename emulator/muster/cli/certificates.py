"""`muster certs`: makes a certificate authority of one's own."""

from pathlib import Path

import click

from muster.cli.options import failures_as_status


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--days",
    type=click.FloatRange(min=1, max=3650),
    default=365.0,
    metavar="N",
    help="How long the authority is valid; default 365.",
)
@failures_as_status
def certs(folder: Path, days: float) -> None:
    """Make a certificate authority in FOLDER, for runs that set launch.authority."""
    from muster.common.clock import WallClock
    from muster.emulator.credentials.authority import make_authority

    made = make_authority(folder, WallClock().now(), days * 86_400)
    click.echo(f"{folder} is an authority until {made.expires_at:%Y-%m-%d %H:%M} UTC")
    settings = f"--set launch.tls=true --set launch.authority={folder.resolve()}"
    click.echo(f"use it with: muster run SCENARIO {settings}")

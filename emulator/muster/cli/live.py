"""`muster live`: the page that shows what a fleet is doing."""

from pathlib import Path

import click

from muster.cli.options import PORT, RUN, failures_as_status
from muster.common.clock import WallClock


@click.command()
@RUN
@PORT
@failures_as_status
def live(folder: Path, port: int) -> None:
    """Show the run in FOLDER (default runs/latest) as a page, until Ctrl-C.

    The run may go on, have ended or have been killed. The page is for browsers of this machine.
    """
    from muster.emulator.live.beside import described, require_extra
    from muster.emulator.live.page_address import open_port
    from muster.emulator.run_folder.folder import run_folder

    require_extra()
    from muster.emulator.live.serving import serve

    found = run_folder(folder)
    listening, address = open_port(port)
    with listening:
        click.echo("\n".join(described(address)))
        serve(found, listening, address, WallClock())

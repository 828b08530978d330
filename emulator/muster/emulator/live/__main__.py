"""The live page's program beside `muster run --live`: `python -m muster.emulator.live`, with
PageProcess as a line of JSON on standard input.

It dies with its parent, and ends on SIGTERM after a last look at the run folder.
"""

import socket
import sys
from pathlib import Path

from muster.common.clock import WallClock
from muster.emulator.live.beside import PageProcess
from muster.emulator.live.page_address import PageAddress
from muster.emulator.live.serving import serve


def main() -> None:
    """Serve the page of the run that standard input names."""
    config = PageProcess.model_validate_json(sys.stdin.readline())
    listening = socket.socket(fileno=config.file)
    address = PageAddress(listening.getsockname()[1], config.token, config.operator)
    serve(Path(config.folder), listening, address, WallClock())


if __name__ == "__main__":
    main()

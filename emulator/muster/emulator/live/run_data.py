"""What the page shows of a run, as one piece of JSON for a page that has no program.

Its size is bounded: charts have at most 2,000 rounds, the journal the newest events of each kind,
and devices some characters each. Their calls are in it only if the fleet is small.
"""

from pathlib import Path

import orjson

from muster.emulator.live.device_life import MOST_CALLS, Life, device_lives
from muster.emulator.live.frames import PageReader, publication
from muster.emulator.live.run_reader import RunReader
from muster.emulator.run_folder.folder import LEDGER

MOST_LIVES = 400
"""The largest fleet with the calls of its devices; a larger one is shown without tiles, too."""

_MOST_CALLS_OF_ALL = 4000


def run_data(folder: Path, status: str) -> bytes:
    """The first frame of the page, and the `lives` of all devices by name, or null.

    Args:
        status: how the run stands, if its journal does not say it.

    Raises:
        ConfigError: the folder's scenario cannot be read.
        LedgerError: there is no ledger that can be read.
    """
    reader = RunReader(folder)
    reader.read()
    frame = PageReader().frame(publication(1, reader.state, status))
    assert frame is not None
    devices = len(reader.state.setup.clients)
    lives: dict[str, Life] | None = None
    if devices <= MOST_LIVES:
        rounds = min(MOST_CALLS, _MOST_CALLS_OF_ALL // devices)
        lives = device_lives(folder / LEDGER, rounds)
    return orjson.dumps({"frame": orjson.Fragment(frame), "lives": lives})

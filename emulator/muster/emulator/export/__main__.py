"""The program that tracks a run beside it: `python -m muster.emulator.export`, with TrackingProcess
as a line of JSON on standard input. It dies with its parent, and ends when its input does."""

from muster.common.clock import WallClock
from muster.emulator.export.tracking import main

if __name__ == "__main__":
    main(WallClock())

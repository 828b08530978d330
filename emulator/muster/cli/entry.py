"""The program `muster`, which an interrupt (Ctrl-C) ends without a traceback from its first moment.

Importing the command line takes a tenth of a second and more. Nothing has been started or made by
then, so an interrupt may end the process as the operating system would.
"""

# The part of `signal` that is in the interpreter: `signal` itself takes milliseconds to import.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from muster.common.early_start import NURSERY, start_early
from muster.common.environment import settle_environment
from muster.common.garbage import import_quickly


def main() -> None:
    """Import the command line and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not where the parent has interrupts ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_quickly()
    settle_environment()
    if _needs_nursery(sys.argv[1:]):
        with suppress(OSError):  # the run says what the machine lacks
            start_early(NURSERY)
    from muster.cli.commands import main as command_line

    signal.signal(signal.SIGINT, handler)
    command_line()


def _needs_nursery(words: Sequence[str]) -> bool:
    """Whether a command starts device processes on this machine, as far as its words tell. If there
    is a PYTHONPATH, only the scenario says from where they may import."""
    elsewhere = any(w in ("-h", "--help") or w.startswith("--backend") for w in words)
    return words[:1] == ["run"] and not elsewhere and "PYTHONPATH" not in os.environ

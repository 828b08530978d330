"""The program `muster`, which an interrupt (Ctrl-C) ends without a traceback from its first moment.

Importing the command line takes a tenth of a second and more. Nothing has been started or made by
then, so an interrupt may end the process as the operating system would.
"""

# The part of `signal` that is in the interpreter: `signal` itself takes milliseconds to import.
import _signal as signal  # type: ignore[import-not-found]
import sys

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
    if sys.argv[1:2] == ["run"] and not any(map(_needs_no_nursery, sys.argv[2:])):
        start_early(NURSERY)
    from muster.cli.commands import main as command_line

    signal.signal(signal.SIGINT, handler)
    command_line()


def _needs_no_nursery(word: str) -> bool:
    """Whether a command with a word shows its help, or may start the fleet elsewhere."""
    return word in ("-h", "--help") or word.startswith("--backend")

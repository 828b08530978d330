"""How long a start takes: from the command to the first committed round of examples/digits.toml.

python benchmarks/starts.py          # nine runs
python benchmarks/starts.py 3        # three
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples/digits.toml"
MUSTER = [sys.executable, "-c", "from muster.cli.entry import main; main()"]


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return UNIX seconds when it began and the seconds that it took."""
    began, clock = time.time(), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return began, time.monotonic() - clock


def run() -> tuple[float, float, float, float]:
    """Run the example once; return seconds to the first commit, in the rounds, from the last commit
    to the end, and of the whole command."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        began, whole_s = timed([*MUSTER, "run", str(EXAMPLE), "--out", str(folder)])
        lines = (folder / "journal.jsonl").read_text().splitlines()
    events = map(json.loads, lines)
    commits = [event["at"] for event in events if event["event"] == "round_committed"]
    first_s, last_s = commits[0] - began, commits[-1] - began
    return first_s, last_s - first_s, whole_s - last_s, whole_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?", type=int, default=9)
    runs = parser.parse_args().runs
    helps = [timed([*MUSTER, "--help"])[1] for _ in range(runs)]
    measured = list(zip(*(run() for _ in range(runs)), strict=True))
    print(f"{runs} runs{'':<50} {'least':>7} {'median':>7} {'most':>7}")
    for what, seconds in zip(
        (
            "muster --help",
            "from the command to the first committed round, s",
            "the other rounds",
            "from the last round to the end of the command",
            "the whole command",
        ),
        (helps, *measured),
        strict=True,
    ):
        least, most = min(seconds), max(seconds)
        print(f"{what:<56} {least:>7.2f} {statistics.median(seconds):>7.2f} {most:>7.2f}")


if __name__ == "__main__":
    main()

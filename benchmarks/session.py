"""Run benchmarks one after the other, and write what they print into one file: `make bench`.

python benchmarks/session.py                 # all (about an hour)
python benchmarks/session.py rounds life     # some, by name
python benchmarks/session.py --data DIR      # training on Fashion-MNIST, and a run of 100 devices

The file, benchmarks/out/session.md, begins with the commit and the machine. Every benchmark follows
with its command, and with how busy the machine was before it. docs/performance.md has its tables
from such a file.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).parent

BENCHMARKS: dict[str, Sequence[str]] = {
    "starts": ["starts.py"],
    "training": ["training.py"],
    "together": ["together.py"],
    "rounds": ["rounds.py"],
    "unshaped": ["rounds.py", "10", "10000", "200", "--beside", "unshaped"],
    "updates": ["updates.py"],
    "sums": ["scale.py", "sums"],
    "packed": ["scale.py", "packed"],
    "lives": ["scale.py", "lives"],
    "processes": ["scale.py", "processes"],
    "sweep": ["scale.py", "sweep"],
    "selection": ["selection.py"],
    "memory": ["memory.py"],
    "robust": ["robust.py"],
    "rational": ["rational.py"],
    "links": ["links.py"],
    "life": ["life.py"],
    "virtual": ["virtual_runs.py"],
}
"""The scripts by name, with their arguments, in the order in which they run."""

WITH_DATA = frozenset({"training", "together"})
"""Those that measure more with --data."""


def commit() -> str:
    """The commit of this checkout, and whether files differ from it."""
    known = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(known, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "not a checkout of git"


def machine() -> str:
    """The processor, the number of cores, and the versions that matter."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("grpcio", "numpy", "torch"))
    return f"{len(names)} × {names[0]}, Python {platform.python_version()}, {packages}"


def measure(name: str, data: Path | None, out: TextIO) -> int:
    """Run one benchmark and return its exit status. What it prints goes to `out` and is shown."""
    words = BENCHMARKS[name]
    if data is not None and name in WITH_DATA:
        words = [*words, "--data", str(data)]
    shown = f"python benchmarks/{shlex.join(words)}".replace(str(data), "DIR")
    load, began = os.getloadavg()[0], time.monotonic()
    print(f"\n## {name}\n\n`{shown}`, load before it {load:.2f}\n\n```", file=out, flush=True)
    print(f"\n{name}: {shown}", flush=True)
    script, *arguments = words
    running = subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        print(line, end="", flush=True)
        print(line, end="", file=out, flush=True)
    status = running.wait()
    ending = f"exit status {status}, {time.monotonic() - began:.0f} s"
    print(f"```\n\n{ending}", file=out, flush=True)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--data", type=Path, help="a folder with FashionMNIST/raw")
    parser.add_argument("--out", type=Path, default=HERE / "out/session.md")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(BENCHMARKS)}")
    options.out.parent.mkdir(exist_ok=True)
    with options.out.open("w") as out:
        print(f"# Commit {commit()}\n\n{machine()}", file=out, flush=True)
        names = options.names or BENCHMARKS
        failed = [name for name in names if measure(name, options.data, out)]
    print(f"\n{options.out}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

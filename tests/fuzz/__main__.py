"""`python -m tests.fuzz [TARGET…]`: tries to break everything that reads input from outside.

Every target is fuzzed for its share of `--seconds`, or with `--count` inputs. A line for each says
how many inputs were tried. An input that is neither accepted nor refused as documented ends its
target. The input is put into the corpus, so that the tests fail until it is mended, and the exit
status is 1. `--keep` puts the inputs that reach new lines into the corpus.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import corpus_of, file_name, keep_smallest
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

_FOUND = Path(".fuzz")
"""Inputs that reached something new, by target; later runs begin with them."""

_MEMORY_MIB = 2048
_SECONDS_EACH = 10
"""Most memory of the process, and most time of one input."""


class _Fuzzed(NamedTuple):
    """What became of a target.

    Attributes:
        broken: the end of the log if an input broke it, else empty.
    """

    executions: int
    broken: str


def _fuzz(target: Target, limit: str, seed: int) -> _Fuzzed:
    """Fuzz a target in a process of its own.

    Args:
        limit: libFuzzer's option for when to end.
    """
    found, corpus = _FOUND / target.name, corpus_of(target.name)
    for folder in (found, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        (found / file_name(data)).write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz.engine", target.name, str(seed), limit]
    command += [f"-max_len={target.most_bytes}", f"-rss_limit_mb={_MEMORY_MIB}"]
    command += [f"-timeout={_SECONDS_EACH}", f"-artifact_prefix={corpus}/"]
    command += ["-print_final_stats=1", str(found), str(corpus)]
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        ended = subprocess.run(
            command,
            env={**os.environ, "TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    log = ended.stdout.decode(errors="replace")
    counted = re.search(r"stat::number_of_executed_units: (\d+)", log)
    executions = int(counted[1]) if counted else 0
    return _Fuzzed(executions, "" if ended.returncode == 0 else log[-4000:])


def _add_to_tally(path: Path, counts: Mapping[str, int]) -> int:
    """Add to the counts in a file; return their sum."""
    before = json.loads(path.read_text()) if path.exists() else {}
    total = Counter(before) + Counter(counts)
    path.write_text(json.dumps(total, indent=1))
    return sum(total.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of them")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--count", type=int, help="inputs for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations")
    parser.add_argument("--tally", type=Path, help="a file to which the counts are added")
    parser.add_argument("--keep", action="store_true", help="only update the corpus")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - TARGETS.keys():
        parser.error(f"there are no targets {unknown}; there are: {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in arguments.targets or TARGETS]
    if arguments.keep:
        for target in chosen:
            _print(f"{target.name:20} {keep_smallest(target, _FOUND / target.name):4} inputs kept")
        return 0
    limit = f"-max_total_time={max(1, round(arguments.seconds / len(chosen)))}"
    if arguments.count is not None:
        limit = f"-runs={arguments.count}"
    counts, broken = Counter[str](), False
    for target in chosen:
        fuzzed = _fuzz(target, limit, arguments.seed)
        counts[target.name] = fuzzed.executions
        verdict = "BROKEN" if fuzzed.broken else "held"
        _print(f"{target.name:20} {fuzzed.executions:12,} inputs  {verdict}")
        if fuzzed.broken:
            broken = True
            _print(fuzzed.broken)
    _print(f"{'together':20} {counts.total():12,} inputs")
    if arguments.tally is not None:
        _print(f"{'in the tally':20} {_add_to_tally(arguments.tally, counts):12,} inputs")
    return int(broken)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

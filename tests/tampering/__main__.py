"""`python -m tests.tampering [KIND…]`: prints what `muster audit` finds of every tampering with
small runs of many kinds, and exits with 1 if one is silent that the audit's page does not name."""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import torch
from tests.tampering.playing import Found, play
from tests.tampering.runs import KINDS, make
from tests.tampering.tamperings import tamperings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tampering", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only subjects with this text")
    parser.add_argument("--every", type=int, default=1, help="only every so many tamperings")
    parser.add_argument("--keep", type=Path, help="where runs are kept between two calls")
    arguments = parser.parse_args()
    found = list[Found]()
    with tempfile.TemporaryDirectory(prefix="muster-tampering-") as scratch:
        place = arguments.keep or Path(scratch)
        for kind in arguments.kinds or KINDS:
            began = time.monotonic()
            folder = place / kind
            if not folder.exists():
                make(kind, folder)
            chosen = [t for t in tamperings(folder) if arguments.only in t.name]
            torch.set_num_threads(1)
            here = list(
                play(
                    kind,
                    folder,
                    chosen[arguments.seed % arguments.every :: arguments.every],
                    arguments.seed,
                )
            )
            found += here
            silent = [each for each in here if not each.by]
            _print(f"{kind}: {len(silent)} of {len(here)} silent, {time.monotonic() - began:.0f} s")
            for each in silent:
                _print(f"  {each.tampering.name}")
    _table(found)
    return 0


def _table(found: list[Found]) -> None:
    by = defaultdict[str, Counter[str]](Counter)
    for each in found:
        by[each.tampering.name][each.by or "SILENT"] += 1
    width = max(map(len, by), default=0)
    for name, counts in sorted(by.items()):
        _print(f"{name:<{width}}  " + ", ".join(f"{n} {by}" for by, n in counts.items()))
    for form in (False, True):
        of_form = [each for each in found if each.tampering.forged is form]
        known = sum(bool(each.by) for each in of_form)
        what = "forgeries" if form else "accidents"
        if of_form:
            _print(f"{what}: {known} of {len(of_form)} found, {100 * known / len(of_form):.1f} %")
    for each in found:
        if each.by == "CRASH":
            _print(f"{each.kind}: {each.tampering.name}: {each.sentence}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

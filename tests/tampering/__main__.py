"""`python -m tests.tampering [KIND…]`: prints what `muster audit` finds of every tampering with
small runs of many kinds, and exits with 1 if one is silent that docs/audit.md does not except."""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from tests.tampering.playing import Found, play
from tests.tampering.runs import KINDS, make
from tests.tampering.tamperings import tamperings

from muster.emulator.run_audit.unchecked import excused


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tampering", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only subjects with this text")
    parser.add_argument("--every", type=int, default=1, help="only every so many tamperings")
    parser.add_argument("--keep", type=Path, help="where runs are kept between two calls")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = list[Found]()
    with tempfile.TemporaryDirectory(prefix="muster-tampering-") as scratch:
        for kind in arguments.kinds or KINDS:
            began, folder = time.monotonic(), (arguments.keep or Path(scratch)) / kind
            if not folder.exists():
                make(kind, folder)
            chosen = [t for t in tamperings(folder) if arguments.only in t.name]
            chosen = chosen[arguments.seed % arguments.every :: arguments.every]
            here = list(play(kind, folder, chosen, arguments.seed))
            found += here
            _print(f"{kind}: {_rate(here)}, {time.monotonic() - began:.0f} s")
            for each in here:
                if each.by in ("", "CRASH"):
                    why = "  an honest run leaves the same" if each.honest else ""
                    why = why or ("" if excused(each.tampering.name) else "  NOT EXCEPTED")
                    _print(f"  {each.tampering.name}{why}  {each.sentence}".rstrip())
    _table(found)
    forms = {"in one place": (False, ""), "ledger, made to agree": (True, "ledger"),
             "scenario, made to agree": (True, "scenario.toml")}  # fmt: skip
    for form, (forged, subject) in forms.items():
        of_form = [
            each
            for each in found
            if each.tampering.forged is forged and each.tampering.subject.startswith(subject)
        ]
        _print(f"{form}: {_rate(of_form)}")
    _print(f"together: {_rate(found)}")
    _print(f"but for honest folders: {_rate([each for each in found if not each.honest])}")
    silent = [
        each
        for each in found
        if not each.by and not each.honest and not excused(each.tampering.name)
    ]
    return int(bool(silent))


def _rate(found: Sequence[Found]) -> str:
    known = sum(bool(each.by) for each in found)
    return f"{known} of {len(found)} found, {100 * known / max(1, len(found)):.1f} %"


def _table(found: Sequence[Found]) -> None:
    """Print every tampering with the checks that find it, and how often."""
    by = defaultdict[str, Counter[str]](Counter)
    for each in found:
        by[each.tampering.name][each.by or "SILENT"] += 1
    width = max(map(len, by), default=0)
    for name, counts in sorted(by.items()):
        _print(f"{name:<{width}}  " + ", ".join(f"{n} {by}" for by, n in counts.items()))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

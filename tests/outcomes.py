"""What several runs of pytest did with every test, which tests none of them played, and how long
each file of tests took.

With MUSTER_OUTCOMES=FILE a run adds a line for each of its tests to FILE (`Recorder`, which
conftest.py registers). `python -m tests.outcomes FILE` then reads the lines of all runs, and exits
with 1 if a test was skipped everywhere for a reason that `skipped.toml` does not list.
"""

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("skipped.toml")
_LONGEST = 30
"""How many of the files that take longest are printed."""


class Recorder:
    """A plugin that adds the outcome of every test, and of every module that is skipped whole."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ended = report.when == "call" or report.skipped
        self._add(
            test=report.nodeid,
            seconds=report.duration,
            **({"skipped": _reason(report)} if ended else {}),
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._add(test=report.nodeid, seconds=0.0, skipped=_reason(report))

    def _add(self, **line: object) -> None:
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why the test was skipped; None if it was played, and also if it failed as was expected."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    assert isinstance(report.longrepr, tuple)
    return str(report.longrepr[2]).removeprefix("Skipped: ")


@dataclass(slots=True)
class Outcomes:
    """What all runs did."""

    played: set[str] = field(default_factory=set)
    skipped: dict[str, set[str]] = field(default_factory=dict)
    """The reasons of a test, or of a module, that some run skipped."""

    seconds: Counter[str] = field(default_factory=Counter)
    """How long the tests of each file took, with what they needed before and after."""

    def add(self, test: str, reason: str | None) -> None:
        if reason is None:
            self.played.add(test)
        else:
            self.skipped.setdefault(test, set()).add(reason)

    def never_played(self) -> dict[str, set[str]]:
        """The tests and modules that every run skipped, with their reasons."""
        modules = {test.partition("::")[0] for test in self.played}
        return {
            test: reasons
            for test, reasons in sorted(self.skipped.items())
            if test not in self.played and test not in modules
        }


def read(lines: Iterable[str]) -> Outcomes:
    outcomes = Outcomes()
    for line in map(json.loads, lines):
        outcomes.seconds[line["test"].partition("::")[0]] += line["seconds"]
        if "skipped" in line:
            outcomes.add(line["test"], line["skipped"])
    return outcomes


@dataclass(frozen=True, slots=True)
class Allowed:
    """Reasons for which a test may be skipped by all runs."""

    always: Mapping[str, str]
    """By a regular expression, searched in "test: reason": why CI cannot play such tests."""

    without: Mapping[str, str]
    """By the same: the part of CI (docker, browser, extras) that plays such tests."""

    @classmethod
    def listed(cls, file: Path = LIST) -> "Allowed":
        return cls(**tomllib.loads(file.read_text(encoding="utf-8")))

    def allow(self, test: str, reason: str, missing: Iterable[str]) -> bool:
        """Whether `test` may be skipped for `reason` where the parts `missing` cannot run."""
        parts = {pattern for pattern, part in self.without.items() if part in missing}
        return any(re.search(each, f"{test}: {reason}") for each in {*self.always, *parts})


def unexplained(
    outcomes: Outcomes, allowed: Allowed, missing: Iterable[str]
) -> dict[str, set[str]]:
    """The tests that no run played, although none of their reasons is allowed."""
    return {
        test: reasons
        for test, reasons in outcomes.never_played().items()
        if not any(allowed.allow(test, reason, missing) for reason in reasons)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Find tests that no run has played.")
    parser.add_argument("file", type=Path, help="what the runs wrote (MUSTER_OUTCOMES)")
    parser.add_argument("--without", nargs="*", default=[], help="parts that could not run here")
    given = parser.parse_args()
    with given.file.open(encoding="utf-8") as lines:
        outcomes = read(lines)
    found = unexplained(outcomes, Allowed.listed(), given.without)
    never = len(outcomes.never_played())
    said = [f"{spent:7.0f} s  {file}" for file, spent in outcomes.seconds.most_common(_LONGEST)]
    said += [f"{len(outcomes.played)} tests were played, and {never} by no run"]
    said += [f"  {test}: {'; '.join(sorted(reasons))}" for test, reasons in found.items()]
    if found:
        said.append(f"Play these in .ci/run, or enter their reasons in tests/{LIST.name}.")
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

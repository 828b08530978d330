"""Staleness is counted in one place, which says what it is, and whether it is too large."""

import re
from pathlib import Path

import pytest

from muster.server.rounds.staleness import is_too_stale, staleness

PLACES = (
    "server/muster/server/rounds/staleness.py",
    "emulator/muster/simulation/specification.py",  # computes it by itself, to check the other
)
ROOTS = "common", "server", "client", "emulator"

COUNTED = re.compile(
    r"\w*(?:version|base)\w*(?:\[[^]]*\])? - (?:\w+[.\[])*['\"]?\w*(?:version|base)"
)
"""A difference of two versions. Staleness is the only one that the product needs."""


@pytest.mark.parametrize(
    ("newest", "trained_from", "expected"), [(0, 0, 0), (5, 5, 0), (6, 5, 1), (9, 2, 7)]
)
def test_staleness_is_the_number_of_versions_made_since(
    newest: int, trained_from: int, expected: int
) -> None:
    assert staleness(newest, trained_from) == expected


@pytest.mark.parametrize(
    ("behind", "most", "expected"),
    [(0, 0, False), (1, 0, True), (3, 3, False), (4, 3, True), (1_000, None, False)],
)
def test_an_update_is_too_stale_beyond_the_most(
    behind: int, most: int | None, expected: bool
) -> None:
    assert is_too_stale(behind, most) is expected


def test_no_other_module_subtracts_versions() -> None:
    root = Path(__file__).resolve().parents[3]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for source in ROOTS
        for path in sorted((root / source).rglob("*.py"))
        for line in path.read_text().splitlines()
        if COUNTED.search(line)
    ]
    assert [line for line in found if not line.startswith(PLACES)] == []

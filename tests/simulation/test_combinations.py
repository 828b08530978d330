"""Every combination of features is refused with a reason before anything starts, or runs to its
end."""

import os
from pathlib import Path
from random import Random

import pytest
from tests.simulation.combined import AXES, MORE, Choice, combined, every_choice

from muster.server.aggregators import BUILT_IN
from muster.simulation.whole_run import simulate_run

_DRAWN = 2000
"""Number of combinations of all axes in the whole walk."""


def _drawn(number: int, seed: int) -> list[Choice]:
    """Combinations in which few axes differ from the first choice, because one that differs in
    many is refused for many reasons and tries nothing."""
    random, found = Random(seed), list[Choice]()
    for _ in range(number):
        axes = random.sample(sorted(set(MORE) - {"rule"}), random.choice([1, 2, 3]))
        choice = {axis: random.choice(list(MORE[axis])) for axis in axes}
        found.append({"rule": random.choice(list(BUILT_IN)), **choice})
    return found


def _require_refused_or_played(choice: Choice, folder: Path) -> None:
    found = combined(choice)
    assert not found.others, f"{choice}: refused by no table: {found.others}"
    if found.refusals:
        assert found.scenario is None, f"{choice}: accepted, although {found.refusals}"
        return
    assert found.scenario is not None
    if found.scenario.task.hosted:  # tests/integration/flower plays apps
        return
    assert simulate_run(found.scenario, folder / "run") == "completed", choice


@pytest.mark.parametrize("choice", _drawn(24, 7), ids=lambda choice: "-".join(choice.values()))
def test_a_drawn_combination_is_refused_or_runs(choice: Choice, tmp_path: Path) -> None:
    _require_refused_or_played(choice, tmp_path)


def test_no_combination_is_refused_by_another_table() -> None:
    for choice in _drawn(150, 8):
        found = combined(choice)
        assert not found.others, f"{choice}: {found.others}"
        assert (found.scenario is None) == bool(found.refusals)


@pytest.mark.skipif("MUSTER_COMBINATIONS" not in os.environ, reason="long: make combinations")
@pytest.mark.timeout(4 * 3600)
def test_all_combinations_are_refused_or_run(tmp_path: Path) -> None:
    """Collects what is wrong, so that one walk finds all of it."""
    wrong = list[str]()
    for choice in [*every_choice(), *_drawn(_DRAWN, 9)]:
        try:
            _require_refused_or_played(choice, tmp_path)
        except Exception as error:
            wrong.append(f"{choice}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_walk_has_every_rule() -> None:
    assert set(AXES["rule"]) == set(BUILT_IN)

"""Plays the quick form of a study with a defect in the product, to find the claims that fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.simulation.whole_run import simulate_run
from muster.studies import Claim, Options, Result, Results, StudyRun
from muster.studies.plan import find_study

SEED = 301
"""The first seed of all mutation tests."""

Judge = Callable[[str, Callable[[StudyRun], bool]], dict[str, Claim]]


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    """A function that plays the quick form of a study inside this process.

    Its second argument chooses the runs that are played; the others have no result, so claims about
    them do not hold. It returns the judged claims by their text.
    """

    def judge(name: str, needed: Callable[[StudyRun], bool]) -> dict[str, Claim]:
        study = find_study(name)
        options = Options(quick=True, seed=SEED, seeds=study.quick_seeds)
        results = []
        for number, run in enumerate(study.runs(options)):
            if needed(run):
                simulate_run(run.scenario, tmp_path / f"{number}")
            results.append(Result(run, tmp_path / f"{number}"))
        claims = study.judge(Results(results), options).claims
        return {claim.claim: claim for claim in claims}

    return judge

"""Numbers that the pages of studies state and that no study prints.

Each test computes a number and requires that the page states it.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from muster.studies import Options
from muster.studies.agnostic.fleet import DECAY, DEVICES
from muster.studies.agnostic.known import (
    inclusion_of_random_size,
    shares,
    shares_of_random_size,
    skew,
)
from muster.studies.agnostic.study import AgnosticStudy
from muster.studies.correlated import fleet as correlated
from muster.studies.correlated.study import CorrelatedStudy
from muster.studies.correlated.theorems import expected, printed, steps
from muster.studies.fedipw.study import FedIpwStudy, TrainingByN
from muster.studies.fedplt.known import limits, path
from muster.studies.fedplt.static_fleet import ALIKE, SKEWED
from muster.studies.fedplt.static_study import FULL as FULL_STATIC
from muster.studies.fedplt.static_study import static_runs
from muster.studies.fedplt.study import FedPltStudy
from muster.studies.feduca.fleet import INSTITUTES, STRATEGIES
from muster.studies.feduca.study import FedUcaStudy, OtherBaselines
from muster.studies.staleness.fleet import BUFFERED, scenario
from muster.studies.staleness.further import AT_FINISH, LONG
from muster.studies.staleness.study import StalenessStudy
from muster.studies.study import Study
from muster.studies.usual_rules.study import UsualRulesStudy

PAGES = Path(__file__).parents[2] / "docs" / "studies"
FULL = Options(data="/data")


def page(name: str) -> str:
    """The page in one line."""
    return re.sub(r"\s+", " ", (PAGES / f"{name}.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "study", "without", "sentence"),
    [
        ("agnostic", AgnosticStudy, [], "{runs} runs with {rounds:,} rounds"),
        ("correlated", CorrelatedStudy, ["fedavg"], "{runs} runs with {rounds:,} rounds"),
        ("fedipw", FedIpwStudy, ["F"], "The other parts took {runs} runs"),
        (
            "fedplt",
            FedPltStudy,
            ["static", "static decay", "path", "network", "boundary"],
            "{runs} runs with {rounds:,} rounds of 10 to 20 devices",
        ),
        (
            "staleness",
            StalenessStudy,
            ["stale", "linked", AT_FINISH],
            "The runs for the 29 were {runs}, with {rounds:,} rounds or versions of 40 devices",
        ),
        ("usual-rules", UsualRulesStudy, [], "The {runs} runs, of 60 rounds of 20 devices"),
    ],
)
def test_the_runs_of_a_page_are_those_of_the_full_form(
    name: str, study: type[Study], without: list[str], sentence: str
) -> None:
    runs = [
        run
        for run in study(kind=name).runs(FULL)
        if run.part not in without and run.labels.get("change") not in without
    ]
    rounds = sum(run.scenario.server.rounds for run in runs)
    assert sentence.format(runs=len(runs), rounds=rounds) in page(name)


def test_fedplt_states_where_static_masks_lead_and_the_smallest_alignment_at_the_start() -> None:
    away: dict[str, list[float]] = {ALIKE: [], SKEWED: []}
    first = []
    for seed in (201, 202, 203):
        for part, labels, read in static_runs(seed, FULL_STATIC):
            if part == "path":
                limit, best = limits(read)
                away[str(labels["data"])].append(float(np.linalg.norm(limit - best)))
                one = read.model_copy(
                    update={"server": read.server.model_copy(update={"rounds": 1})}
                )
                first.append(path(one).alignments[0].min())
    alike, skewed = (np.mean(away[data]) for data in (ALIKE, SKEWED))
    assert f"{alike:.2f} (alike) and {skewed:.1f} (skewed) from W*" in page("fedplt")
    assert f"at the start every ρ_k > 0 (at least .{100 * min(first):.0f})" in page("fedplt")


def test_correlated_states_the_expectations_and_bounds_of_a_start() -> None:
    start, text = np.ones(3), page("correlated")
    for scheme in ("biased", "debiased"):
        for rounds in (25, 900, 1500):
            found, bound = expected(steps(scheme), start, rounds), printed(scheme, start, rounds)
            row = f"| {scheme} | {rounds:,} | {found.gradient:.3f} | {found.bound:.3f} "
            assert f"{row}| {bound:,.1f} |" in text
            assert scheme == "biased" or bound > 10_000 * found.gradient
    there = correlated.DEVICE_PROBABILITY ** correlated.SIZES[1]
    assert f"active with probability .{100 * there:.0f}" in text


def test_agnostic_states_the_shares_and_the_skews() -> None:
    text, comes = page("agnostic"), inclusion_of_random_size()
    often = shares_of_random_size()[0]
    assert f"the p of this device is {often:.2f}, and its share of Σ π is " in text
    assert comes[0] / comes.sum() == pytest.approx(0.5)
    assert f"nobody comes in {100 * (1 - comes).prod():.0f} % of the rounds" in text
    assert f"N Σ p² = {DEVICES * (shares(DECAY) ** 2).sum():.2f}" in text
    low, high = (skew(shares(decay)) for decay in (1000, 5))
    assert f"from {low:.2f} to {high:.2f}" in text


def test_feduca_states_the_bound_of_lemma_a_10_and_the_number_of_its_runs() -> None:
    bounds = [
        (STRATEGIES - 1) / (INSTITUTES * (STRATEGIES * delta + 1)) for delta in (0.01, 1.0, 1000.0)
    ]
    assert bounds == pytest.approx([0.38, 0.067, 0.00008], rel=0.02)
    assert "| .38, .067, .00008 at δ = 0.01, 1, 1000 |" in page("feduca")
    elsewhere = ("cifar-10", "20 newsgroups")
    one = FedUcaStudy(kind="feduca").runs(Options(seeds=1, data="/data"))
    there = sum(run.part not in elsewhere for run in one)
    assert f"{there} runs for each seed" in page("feduca")


def test_staleness_states_how_far_a_device_goes_to_its_optimum() -> None:
    usual = scenario(1, BUFFERED, 1, LONG._replace(steps=5)).training.learning_rate
    assert isinstance(usual, float)
    short, long = (1 - (1 - usual) ** steps for steps in (5, LONG.steps))
    assert f"a device goes {100 * short:.0f} % of the way to its own optimum" in page("staleness")
    assert f"it goes {100 * long:.0f} % of the way" in page("staleness")


def test_runs_without_claims_are_those_that_the_pages_name() -> None:
    """Two pages name studies that only print a table."""
    few = Options(seed=401, seeds=2)
    baselines = OtherBaselines(kind="feduca").runs(few)
    quick = FedUcaStudy(kind="feduca").runs(Options(quick=True, seed=401, seeds=2))
    assert {run.title for run in baselines}.isdisjoint(run.title for run in quick)
    full = {run.title for run in FedUcaStudy(kind="feduca").runs(few)}
    assert {run.title for run in baselines} <= full
    assert {run.scenario.server.rounds for run in baselines} == {20}
    training = TrainingByN(kind="fedipw").runs(Options(seed=1, seeds=3))
    assert len(training) == 6
    divisors = {run.scenario.server.aggregator.model_dump()["normalise"] for run in training}
    assert divisors == {"hajek", "horvitz-thompson"}
    for name, study in (("feduca", OtherBaselines), ("fedipw", TrainingByN)):
        assert f"`muster study {study.__module__}:{study.__name__} " in page(name)

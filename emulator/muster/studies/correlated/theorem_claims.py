"""The claims of the study `correlated` about the paper's Theorems 1 and 2."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from muster.studies.claims import BySeed, Claim, at_most, close, greater, negligible
from muster.studies.correlated.measures import (
    UNDER_LIMITS,
    CorrelatedMeasures,
    mean,
    mean_square_gradient,
    start,
)
from muster.studies.correlated.theorems import Expected, expected, printed, steps
from muster.studies.results import Measure, Result

SHORT = 25
"""Rounds of the short runs, with which the rate of the long runs is compared."""

_TIGHT = {"biased": 0.5, "debiased": 1 / 6}
"""The least share of the bound that the mean of ‖∇F‖² must reach. The exact expectation is about
.74 and .27 of it."""
_EXPECTED_MARGIN = 0.4


def theorem_claims(found: CorrelatedMeasures, rounds: int) -> Iterator[Claim]:
    """The claims about runs of `SHORT` and of `rounds` rounds."""
    yield from _bounded(found, "biased", "Theorem 1, biased", rounds)
    yield from _bounded(found, "debiased", "Theorem 2, debiased", rounds)
    yield from _rate(found, rounds)


def _bounded(found: CorrelatedMeasures, scheme: str, text: str, rounds: int) -> Iterator[Claim]:
    of_bound = found.of_theorems(_of_bound(scheme), scheme, rounds)
    yield at_most(
        f"{text}: the mean of ‖∇F‖² over the rounds, as a share of the bound", of_bound, 1.0
    ).because("The proof holds for every smooth function, with the exact variance and bias.")
    yield greater(
        f"{text}: the bound is not vacuous: the mean of ‖∇F‖² is more than {_TIGHT[scheme]:.2g} "
        f"of it",
        of_bound,
        by=_TIGHT[scheme],
    ).because("The proof loses the part of the progress that the bound does not subtract.")
    yield close(
        f"{text}: the mean of ‖∇F‖², as a multiple of its expectation",
        found.of_theorems(_of_expected(scheme), scheme, rounds),
        1.0,
        _EXPECTED_MARGIN,
    ).because("The step depends on the event alone, so expectations follow a linear recursion.")


def _rate(found: CorrelatedMeasures, rounds: int) -> Iterator[Claim]:
    long, short = (_gradients(found, "debiased", length) for length in (rounds, SHORT))
    yield negligible(
        "Theorem 2: debiased goes to zero: the mean of ‖∇F‖² in a long run, as a share of that in "
        "a short one",
        long,
        short,
        (SHORT / rounds) ** 0.25,
    ).because(
        "The theorem's rate is 1/√T. The limit is T^(−¼), midway on a logarithmic scale between "
        "this rate and none."
    )
    yield at_most(
        "Theorem 2: debiased goes below the bias: the mean of ‖∇F‖² in a long run, as a share of "
        "the bias term",
        long,
        0.5,
    ).because("The bias is removed, and the variance falls with the step 1/√T.")
    yield greater(
        "Theorem 1: biased does not go to zero: the mean of ‖∇F‖² in a long run, as a share of the "
        "bias term",
        _gradients(found, "biased", rounds),
        by=0.5,
    ).because("The bias term of the theorem does not depend on T.")


def _gradients(found: CorrelatedMeasures, scheme: str, rounds: int) -> BySeed:
    return found.of_theorems(mean_square_gradient, scheme, rounds)


def theorem_table(found: CorrelatedMeasures, lengths: tuple[int, ...]) -> pd.DataFrame:
    """Measured and expected means of ‖∇F‖², and the bounds, for every scheme and length."""
    rows = []
    for scheme in UNDER_LIMITS:
        for rounds in lengths:
            measured = {
                "measured": mean_square_gradient,
                "expected": _expected_gradient(scheme),
                "bound": _bound(scheme),
                "printed bound": _printed(scheme),
            }
            values = {
                name: mean(found.of_theorems(measure, scheme, rounds))
                for name, measure in measured.items()
            }
            rows.append({"scheme": scheme, "rounds": rounds, **values})
    return pd.DataFrame(rows)


@cache
def _of_bound(scheme: str) -> Measure:
    return lambda result: mean_square_gradient(result) / _exact(scheme, result).bound


@cache
def _of_expected(scheme: str) -> Measure:
    return lambda result: mean_square_gradient(result) / _exact(scheme, result).gradient


@cache
def _expected_gradient(scheme: str) -> Measure:
    return lambda result: _exact(scheme, result).gradient


@cache
def _bound(scheme: str) -> Measure:
    return lambda result: _exact(scheme, result).bound


@cache
def _printed(scheme: str) -> Measure:
    return lambda result: printed(scheme, start(result), result.scenario.server.rounds)


def _exact(scheme: str, result: Result) -> Expected:
    """The expectations for a run's own start. It is random, but known before the run."""
    return _expected(scheme, tuple(start(result).tolist()), result.scenario.server.rounds)


@cache
def _expected(scheme: str, at: tuple[float, ...], rounds: int) -> Expected:
    return expected(steps(scheme), np.array(at), rounds)

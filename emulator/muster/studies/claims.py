"""The rules that decide whether a claim holds, as pure functions from numbers to `Claim` rows.

Rule 1: with at least `ENOUGH` seeds, a claim is judged by Student's t over the seeds. Fewer seeds
are too few for an interval, so their mean is judged, and the row says so. How often such a claim
holds is known only from a measurement on many seeds, the claim's `rate`.

Rule 2: if a value is missing or not finite, the claim fails and has a sentence in place of the
number. A claim is never left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from muster.emulator.records.intervals import interval

BySeed = Mapping[int, float]
"""Seed to the value that was measured with it; NaN without a value."""

ENOUGH = 5
"""The least number of seeds for which confidence intervals are used."""

LEAST_RANK_CORRELATION = 0.9
_ENOUGH_LEVELS = 4

# The lower end of a two-sided interval of 90 % is the one-sided bound of 95 %; and two one-sided
# tests at 5 % show equivalence exactly if this interval lies inside the margin (Schuirmann 1987).
_LEVEL = 0.90

_NO_SEED = -1
"""The seed that stands for a number that does not depend on a seed."""

Ends = tuple[float | None, float | None]


class HoldRate(NamedTuple):
    """The number of repetitions of a study in which a claim held, `held` of `of`."""

    held: int
    of: int

    def __str__(self) -> str:
        return f"{self.held} of {self.of}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of claims.json, and of the table of claims.

    Attributes:
        claim: the claim as a sentence.
        measured: the number that was judged, or a sentence that says why there is none.
        expected: the value or range that the number must have, as text.
        rule: the rule by which it was judged, as text.
        seeds: the seeds that were judged.
        interval: interval of the measured number, of the kind that the rule names; an end of None
            is unbounded.
        margin: the most by which the measured number may differ from the expected one.
        why: a sentence that says why the claim should hold.
        rate: how often it held with seeds on which nothing was tuned; None if that is not known.
    """

    claim: str
    holds: bool
    measured: float | str
    expected: str
    rule: str
    seeds: Sequence[int] = ()
    interval: Ends | None = None
    margin: float | None = None
    why: str = ""
    rate: "HoldRate | None" = None

    def because(self, why: str) -> Self:
        """The same claim, with a sentence that says why it should hold."""
        return replace(self, why=why)

    def __post_init__(self) -> None:
        if not isinstance(self.measured, str) and not math.isfinite(self.measured):
            object.__setattr__(self, "holds", False)
            object.__setattr__(self, "measured", f"not a number: {self.measured}")

    def to_json(self) -> dict[str, Any]:
        """The row for claims.json, with null for missing values."""
        return {
            "claim": self.claim,
            "holds": bool(self.holds),
            "measured": self.measured if isinstance(self.measured, str) else float(self.measured),
            "expected": self.expected,
            "rule": self.rule,
            "seeds": list(self.seeds),
            "interval": None if self.interval is None else list(self.interval),
            "margin": self.margin,
            "why": self.why,
            "rate": None if self.rate is None else self.rate._asdict(),
        }


def difference(a: BySeed, b: BySeed) -> dict[int, float]:
    """`a` minus `b`, paired by seed; NaN for a seed that only one of them has."""
    return {seed: a.get(seed, math.nan) - b.get(seed, math.nan) for seed in sorted({*a, *b})}


def times(values: BySeed, factor: float) -> dict[int, float]:
    """`factor` times the value of each seed."""
    return {seed: factor * value for seed, value in values.items()}


def greater(text: str, a: BySeed, b: BySeed | float = 0.0, *, by: float = 0.0) -> Claim:
    """`a` is greater than `b`, paired by seed (or than the number `b`), by more than `by`.

    Holds when the one-sided 95 % confidence interval of the difference excludes `by`; with few
    seeds when the mean exceeds it.
    """
    if isinstance(b, Mapping):
        found, least, what = difference(a, b), by, "difference, paired by seed,"
    else:
        found, least, what = dict(a), b + by, "mean"
    expected, seeds = f"> {least:g}", tuple(found)
    rule = f"one-sided 95 % confidence interval of the {what} excludes {least:g}"
    if problem := _problem(found):
        return Claim(text, False, problem, expected, rule, seeds)
    mean, values = _mean(found.values()), list(found.values())
    if len(found) < ENOUGH:
        rule = f"the mean exceeds {least:g} ({_few(found)}; lowest to highest)"
        return Claim(text, mean > least, mean, expected, rule, seeds, _range(values))
    low = mean - interval(values, _LEVEL).half
    return Claim(text, low > least, mean, expected, rule, seeds, (low, None))


def higher(text: str, a: BySeed, b: BySeed) -> Claim:
    """`a` is higher than `b` as a ratio, paired by seed.

    This suits positive values whose scatter is proportional to their size, such as losses above the
    least loss. It is judged as by `greater`, but on logarithms. The measured number is the
    geometric mean of the ratios.
    """
    logarithms = difference(_logarithms(a), _logarithms(b))
    rule = "one-sided 95 % confidence interval of the mean ratio, paired by seed, excludes 1"
    if 0 < len(logarithms) < ENOUGH:
        rule = f"the mean ratio exceeds 1 ({_few(logarithms)}; lowest to highest)"
    judged = greater(text, logarithms)
    if isinstance(judged.measured, str) or judged.interval is None:
        return replace(judged, expected="> 1 times", rule=rule)
    low, high = (end if end is None else math.exp(end) for end in judged.interval)
    return replace(
        judged,
        measured=math.exp(judged.measured),
        expected="> 1 times",
        rule=rule,
        interval=(low, high),
    )


def close(text: str, values: BySeed, expected: float, margin: float) -> Claim:
    """`values` are `expected`, up to `margin`.

    Two arms are alike if their `difference` is close to 0. Holds when the two-sided 90 %
    confidence interval of the mean lies inside the margin (two one-sided tests at 5 %); with few
    seeds, when the mean distance to `expected` does not exceed it.
    """
    wanted, seeds = f"{expected:g} ± {margin:g}", tuple(values)
    if problem := _problem(values):
        rule = "two-sided 90 % confidence interval inside the equivalence margin"
        return Claim(text, False, problem, wanted, rule, seeds, margin=margin)
    mean = _mean(values.values())
    if len(values) < ENOUGH:
        ends = _range(values.values())
        # Distances, because values on both sides would cancel each other in the mean.
        rule = f"the mean distance is inside the margin ({_few(values)}; lowest to highest)"
        holds = _mean(abs(value - expected) for value in values.values()) <= margin
    else:
        half = interval(values.values(), _LEVEL).half
        ends = mean - half, mean + half
        rule = "two-sided 90 % confidence interval inside the equivalence margin"
        holds = expected - margin <= ends[0] and ends[1] <= expected + margin
    return Claim(text, holds, mean, wanted, rule, seeds, ends, margin)


def at_most(text: str, values: BySeed | float, limit: float) -> Claim:
    """`values` do not exceed `limit`.

    Holds when the one-sided 95 % upper confidence bound of the mean does not exceed it. With few
    seeds, or for a single number that depends on no seed, it holds when the mean does not.
    """
    found, seeds = _mapped(values)
    wanted = f"≤ {limit:g}"
    rule = "the mean does not exceed the limit"
    if problem := _problem(found):
        return Claim(text, False, problem, wanted, rule, seeds)
    mean = _mean(found.values())
    if len(found) < ENOUGH:
        rule += f" ({_few(found)}; lowest to highest)" if seeds else ""
        return Claim(text, mean <= limit, mean, wanted, rule, seeds, _range(found.values()))
    high = mean + interval(found.values(), _LEVEL).half
    rule = "one-sided 95 % confidence interval does not exceed the limit"
    return Claim(text, high <= limit, mean, wanted, rule, seeds, (None, high))


def negligible(text: str, differences: BySeed, effect: BySeed, share: float) -> Claim:
    """Differences are small beside an effect: their size is at most `share` of the mean effect.

    The sign of the differences does not matter, so they cannot cancel each other over the seeds. It
    is judged as by `at_most`, on each seed's size divided by the mean effect over all seeds.

    Args:
        effect: the effect that gives the scale, which must be positive in the mean.
    """
    scale = _mean(effect.values()) if not _problem(effect) else math.nan
    sizes = {seed: abs(x) / scale if scale > 0 else math.nan for seed, x in differences.items()}
    return at_most(text, sizes, share)


def exact(text: str, measured: BySeed | float, expected: float, tolerance: float) -> Claim:
    """Every value equals `expected` up to a rounding error of `tolerance`, without statistics."""
    found, seeds = _mapped(measured)
    wanted, rule = f"{expected:.12g} ± {tolerance:g}", "every value inside the tolerance"
    if problem := _problem(found):
        return Claim(text, False, problem, wanted, rule, seeds, margin=tolerance)
    worst = max(found.values(), key=lambda value: abs(value - expected))
    holds = abs(worst - expected) <= tolerance
    return Claim(text, holds, worst, wanted, rule, seeds, margin=tolerance)


def grows(text: str, levels: Mapping[float, BySeed]) -> Claim:
    """The mean over the seeds grows with the level.

    Holds when Spearman's rank correlation of levels and means is at least .9. With fewer than four
    levels, a rank correlation says little, so every mean has to exceed the one before.

    Args:
        levels: level to the values that were measured at it.

    Raises:
        ValueError: fewer than two levels.
    """
    if len(levels) < 2:
        raise ValueError(f"{text}: expected at least two levels, found {len(levels)}")
    seeds = tuple(sorted({seed for values in levels.values() for seed in values}))
    many = len(levels) >= _ENOUGH_LEVELS
    wanted = f"≥ {LEAST_RANK_CORRELATION:g}" if many else "every mean above the one before"
    rule = (
        f"Spearman's rank correlation of {len(levels)} levels and their means"
        if many
        else f"strictly increasing means over {len(levels)} levels, too few for a rank correlation"
    )
    for level, values in sorted(levels.items()):
        if problem := _problem({seed: values.get(seed, math.nan) for seed in seeds}):
            return Claim(text, False, f"at level {level:g}: {problem}", wanted, rule, seeds)
    means = [_mean(values.values()) for _, values in sorted(levels.items())]
    rank = _rank_correlation(sorted(levels), means)
    holds = rank >= LEAST_RANK_CORRELATION if many else bool(np.all(np.diff(means) > 0))
    ends = f"; means from {means[0]:.4g} to {means[-1]:.4g}"
    return Claim(text, holds, rank, wanted, rule + ends, seeds, _range(means))


def _problem(values: BySeed) -> str:
    """The reason why `values` cannot be judged; empty if they can."""
    missing = [seed for seed, value in values.items() if not math.isfinite(value)]
    if not values:
        return "nothing was measured"
    if missing == [_NO_SEED]:
        return f"not a number: {values[_NO_SEED]}"
    if missing:
        told = ", ".join(f"{seed} ({values[seed]})" for seed in missing)
        return f"no finite value with {'seed' if len(missing) == 1 else 'seeds'} {told}"
    return ""


def _mapped(values: BySeed | float) -> tuple[BySeed, tuple[int, ...]]:
    if isinstance(values, Mapping):
        return values, tuple(values)
    return {_NO_SEED: values}, ()


def _logarithms(values: BySeed) -> dict[int, float]:
    """The logarithm of each value; NaN if the value is not above 0."""
    return {seed: math.log(x) if x > 0 else math.nan for seed, x in values.items()}


def _few(values: BySeed) -> str:
    seeds = "1 seed" if len(values) == 1 else f"{len(values)} seeds"
    return f"{seeds}, fewer than {ENOUGH}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = [float(value) for value in values]
    return min(found), max(found)


def _rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 if all of `b` are equal."""
    ranks = np.array([_ranks(a), _ranks(b)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    norm = math.sqrt(float(np.prod((ranks**2).sum(axis=1))))
    return float(ranks[0] @ ranks[1]) / norm if norm else 0.0


def _ranks(values: Sequence[float]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], np.float64)

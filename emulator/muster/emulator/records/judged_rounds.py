"""Conditions in single rounds: the values of their parts, and whether they hold."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from muster.emulator.expectations.language import (
    ARITHMETIC,
    COMPARISONS,
    Before,
    Condition,
    Expression,
    Fact,
    NumberLiteral,
    Operation,
    Overall,
    RoundsUntil,
    measured_parts,
)
from muster.emulator.records.fact_values import FactValues


class RoundVerdict(NamedTuple):
    """A condition in one round.

    Attributes:
        holds: whether it holds.
        values: the measured values in it, by their text.
        margin: the smallest distance between two sides, which says how narrowly it holds.
    """

    round: int
    holds: bool
    values: Mapping[str, float]
    margin: float


@dataclass(frozen=True)
class JudgedRounds:
    """Rounds that belong together: those of a run, or those before, during or after one window of a
    fault.

    Values that are the same in all these rounds are computed once, so that judging takes a time in
    proportion to the number of rounds.

    Attributes:
        rounds: their numbers, in order.
        before: the last round before the fault; None without a fault.
    """

    facts: FactValues
    rounds: Sequence[int]
    before: int | None = None
    _constant: dict[Expression, float | None] = field(default_factory=dict, init=False)

    def verdicts(self, condition: Condition) -> Iterator[RoundVerdict]:
        """Judge a condition in every round in which all its values are known.

        A condition that is about all rounds together is judged once, in the last of them.
        """
        varies = any(isinstance(part, Fact) for part in measured_parts(condition))
        for round in self.rounds if varies else self.rounds[-1:]:
            if (verdict := self._verdict(condition, round)) is not None:
                yield verdict

    def _verdict(self, condition: Condition, round: int) -> RoundVerdict | None:
        sides = [self._value(side, round) for side in condition.sides]
        known = [side for side in sides if side is not None]
        if len(known) < len(sides):
            return None
        pairs = list(zip(pairwise(known), condition.signs, strict=True))
        holds = all(_holds(sign, *pair) for pair, sign in pairs)
        values = {str(part): self._value(part, round) for part in measured_parts(condition)}
        measured = {name: value for name, value in values.items() if value is not None}
        distances = [abs(left - right) for (left, right), _ in pairs]
        margin = min((each for each in distances if not math.isnan(each)), default=math.inf)
        return RoundVerdict(round, holds, measured, margin)

    def _value(self, expression: Expression, round: int) -> float | None:
        """The value of an expression in a round; None if a fact in it has none."""
        match expression:
            case NumberLiteral(value):
                return value
            case Fact():
                return self.facts.of(expression).get(round)
            case Before(fact):
                return self._once(expression, lambda: self._value_before(fact))
            case Operation(sign, left, right):
                sides = self._value(left, round), self._value(right, round)
                if sides[0] is None or sides[1] is None:
                    return None
                return ARITHMETIC[sign](sides[0], sides[1])
            case Overall(function, inner):
                return self._once(expression, lambda: self._overall(function, inner))
            case RoundsUntil(condition):
                return self._once(expression, lambda: self._rounds_until(condition))

    def _once(self, expression: Expression, compute: Callable[[], float | None]) -> float | None:
        """The value of an expression that is the same in all rounds."""
        if expression not in self._constant:
            self._constant[expression] = compute()
        return self._constant[expression]

    def _value_before(self, fact: Fact) -> float | None:
        """The value of a fact in the last round before the fault in which it has one."""
        return None if self.before is None else self.facts.newest(fact, self.before)

    def _overall(self, function: str, inner: Expression) -> float | None:
        found = [self._value(inner, round) for round in self.rounds]
        values = [value for value in found if value is not None]
        if function == "total":
            return math.fsum(values)
        if not values:
            return None
        if any(map(math.isnan, values)):
            return math.nan
        if function == "mean":
            return math.fsum(values) / len(values)
        return min(values) if function == "least" else max(values)

    def _rounds_until(self, condition: Condition) -> float:
        for count, round in enumerate(self.rounds, start=1):
            verdict = self._verdict(condition, round)
            if verdict is not None and verdict.holds:
                return count
        return math.inf


def _holds(sign: str, left: float, right: float) -> bool:
    """Whether a comparison holds; none does with a value that is not a number, not even `!=`."""
    return not math.isnan(left) and not math.isnan(right) and COMPARISONS[sign](left, right)

"""Rules with one mistake each, which a law of the kit must find."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from pydantic import PrivateAttr
from safetensors import SafetensorError

from muster.common.errors import RunFailed
from muster.common.tensors import Vector
from muster.server.aggregators import (
    Aggregator,
    Cohort,
    Contribution,
    Requirement,
    State,
    Stepping,
    Weighing,
)
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.robust import Coordinatewise
from muster.testing import LAWS, RuleLaws
from muster.testing.laws import ADVICE


class AtClose(Aggregator):
    """A rule that gives its weights at close, which are right."""

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [c.examples * c.discount for c in cohort.contributions]
        return Weighing(weights, math.fsum(weights), state)


class Counting(FedAvg):
    """A rule whose state counts its versions, rightly."""

    def initial_state(self, model: Vector) -> State:
        return {"versions": np.zeros((), np.int64)}

    def next_state(self, state: State, model: Vector) -> State:
        return {"versions": state["versions"] + 1}


class FirstComesFirst(AtClose):
    """Earlier arrivals weigh more."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [c.examples / (1 + place) for place, c in enumerate(cohort.contributions)]
        return Weighing(weights, math.fsum(weights), state)


class OrderDependentSum(Coordinatewise):
    """Adds up one after the other, in float32."""

    def combine(self, updates: np.ndarray, counted: int) -> np.ndarray:
        total = np.zeros(updates.shape[1], np.float32)
        for update in updates:
            total += update
        return total / np.float64(counted)


class Float32Normaliser(AtClose):
    """Adds the weights up in float32."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights, total = [math.sqrt(c.examples) for c in cohort.contributions], np.float32(0)
        for weight in weights:
            total += np.float32(weight)
        return Weighing(weights, float(total), state)


class WeighsAbsentees(AtClose):
    """Divides by the devices that could have come."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        size = len(cohort.contributions)
        return Weighing([1.0] * size, float(cohort.population.enrolled.sum()), state)


class ForgottenState(Stepping, FedAvg):
    """Keeps its momentum in an attribute, which dies with the server."""

    _momentum: float = PrivateAttr(0.0)

    def step(self, mean: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        self._momentum = 0.9 * self._momentum + 1.0
        return mean * self._momentum, state


class GlobalState(FedAvg):
    """Keeps what it has seen in a list of the class, so that asking twice counts twice."""

    seen: ClassVar[list[str]] = []

    def weight(self, contribution: Contribution, state: State) -> float:
        self.seen.append(contribution.client)
        return contribution.examples / self.seen.count(contribution.client)


class StateOfWords(FedAvg):
    """Keeps words, which no file of a state can hold."""

    def initial_state(self, model: Vector) -> State:
        return {"first": np.array(["nobody"])}


class OnlyOthers(AtClose):
    """Divides by the number of the other clients."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        others = len(cohort.contributions) - 1
        weights = [c.examples / others for c in cohort.contributions]
        return Weighing(weights, math.fsum(weights), state)


class FadesByRound(AtClose):
    """Lets its step fall with the number of the round, which empty rounds raise too."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [float(c.examples) for c in cohort.contributions]
        return Weighing(weights, math.fsum(weights) * math.sqrt(cohort.round), state)


class WeightForEverybody(AtClose):
    """Gives weights to all enrolled devices instead of those that came."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        devices = int(cohort.population.enrolled.sum())
        return Weighing([1.0] * devices, float(devices), state)


class NegativeWeight(FedAvg):
    """Gives a device with few examples a weight below zero."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return contribution.examples - 100.0


class EstimateThatIsNoNumber(AtClose):
    """Tells the ledger a number that JSON does not have."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        return super().weigh(cohort, state)._replace(estimates={"spread": math.nan})


class NeedsWhatItDoesNotName(FedAvg):
    """Reads the norm of an update, which it has not named in `needs`."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return 1 / (1 + contribution.squared_norm)


class OtherWeightsAtClose(FedAvg):
    """Is folded on arrival with one weight, and divided by the sum of others."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [math.sqrt(c.examples) for c in cohort.contributions]
        return Weighing(weights, math.fsum(weights), state)


class WritesIntoTheState(Counting):
    """Changes the array of the committed state."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        state["versions"][...] += 1
        return super().weigh(cohort, state)

    def next_state(self, state: State, model: Vector) -> State:
        return state


class Centred(Coordinatewise):
    """Takes the mean of all coordinates away from each update."""

    def combine(self, updates: np.ndarray, counted: int) -> np.ndarray:
        wide = np.sort(updates.astype(np.float64), axis=0)
        return np.asarray((wide - wide.mean(axis=1, keepdims=True)).mean(axis=0))


class NoMean(FedAvg):
    """Weighs by examples, and divides by the number of clients."""

    def normaliser(self, weight_sum: float, contributions: Sequence[Contribution]) -> float:
        return float(len(contributions))


class IgnoresDiscount(AtClose):
    """Lets a stale update count like a fresh one."""

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        weights = [float(c.examples) for c in cohort.contributions]
        return Weighing(weights, math.fsum(weights), state)


class MasksWithParameters(FedAvg):
    """Averages parameters, also of devices that have trained a part of them."""

    weighs: ClassVar[Literal["updates", "parameters"]] = "parameters"

    def requires(self) -> frozenset[Requirement]:
        return frozenset()


class SquareRoot(FedAvg):
    """Counts two halves of a client for more than the whole."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return math.sqrt(contribution.examples)


class Overflowing(FedAvg):
    """Raises the number of examples to a power that float64 cannot hold."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return float(contribution.examples) ** 60


class DoubleResult(Counting):
    """Offers a result in float64."""

    def result(self, state: State, model: Vector) -> Vector:
        return np.asarray(model, np.float64)


class RandomStep(Stepping, FedAvg):
    """Draws from a generator that no seed of the run has made."""

    def step(self, mean: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        return mean * np.random.default_rng().normal(1, 0.1), state


MISTAKES: list[tuple[type[Aggregator], str]] = [
    (FirstComesFirst, "order"),
    (OrderDependentSum, "order"),
    (Float32Normaliser, "order"),
    (WeighsAbsentees, "absentees"),
    (ForgottenState, "crash"),
    (GlobalState, "duplicates"),
    (StateOfWords, "state"),
    (OnlyOthers, "one-client"),
    (FadesByRound, "empty-round"),
    (WeightForEverybody, "weights"),
    (NegativeWeight, "weights"),
    (EstimateThatIsNoNumber, "weights"),
    (NeedsWhatItDoesNotName, "weights"),
    (OtherWeightsAtClose, "arrival"),
    (WritesIntoTheState, "inputs"),
    (Centred, "coordinates"),
    (NoMean, "agreement"),
    (IgnoresDiscount, "staleness"),
    (MasksWithParameters, "masks"),
    (SquareRoot, "splitting"),
    (Overflowing, "extremes"),
    (DoubleResult, "weights"),
    (RandomStep, "duplicates"),
]

FOUND_BY = (AssertionError, RunFailed, ArithmeticError, KeyError, ValueError, SafetensorError)
"""What a law ends with: its own sentence, what the server would refuse, or the rule's own error."""


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    GlobalState.seen.clear()


def laws_of(rule: type[Aggregator]) -> RuleLaws:
    members: dict[str, Any] = {"rule": rule(kind=rule.__name__)}
    laws: RuleLaws = type("LawsOfOne", (RuleLaws,), members)()
    return laws


@pytest.mark.parametrize(
    ("rule", "law"), MISTAKES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_wrong_rule_breaks_the_law_that_names_its_mistake(
    rule: type[Aggregator], law: str
) -> None:
    with pytest.raises(FOUND_BY) as found:
        getattr(laws_of(rule), LAWS[law])()
    assert found.value.__notes__[-1] == f"What to do ({law}): {ADVICE[law]}"


def test_every_law_says_in_sentences_what_to_do() -> None:
    assert ADVICE.keys() == LAWS.keys()
    assert all(text[0].isupper() and text.endswith(".") for text in ADVICE.values())


def test_every_law_finds_a_mistake() -> None:
    assert {law for _, law in MISTAKES} == LAWS.keys()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rule", [AtClose, Counting])
def test_what_the_wrong_rules_are_made_of_is_right(rule: type[Aggregator], law: str) -> None:
    getattr(laws_of(rule), LAWS[law])()

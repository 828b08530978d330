"""The laws that every aggregator must satisfy, as tests.

    from my_rules import SquareRoot
    from muster.testing import RuleLaws

    class TestSquareRoot(RuleLaws):
        rule = SquareRoot(floor=16)
        exceptions = {"splitting": "√n of a whole is less than the sum of the √n of its parts"}

Each law is a test that Hypothesis plays with many made-up courses of rounds. The rounds are played
by `RuleRun`, with the arithmetic of the server. Two runs are compared bit by bit.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar

import numpy as np
import pytest

from muster.common.exact_sum import moved
from muster.common.tensors import Vector
from muster.server.aggregators import (
    AGGREGATORS,
    Aggregator,
    Combining,
    Conditions,
    State,
    Withholder,
)
from muster.server.aggregators.combinations import excludes
from muster.testing.made_up import MadeUpCourse, MadeUpDevice, MadeUpUpdate
from muster.testing.rule_run import RulePoint, RuleRun, renewed, restored
from muster.testing.strategies import courses, for_all

Check = Callable[["RuleLaws", MadeUpCourse], None]
Test = Callable[["RuleLaws"], None]

_WORLD = Conditions(
    z=frozenset({"age", "wealth"}),
    x=frozenset({"load"}),
    full=True,
    selection="all",
    lockstep=True,
    gradient=False,
    rational=True,
)
"""Conditions that suit every rule."""

_OF_STALENESS = Withholder.STALENESS_WEIGHT, Withholder.LATER_ROUNDS
"""What a mode with a staleness weight takes away."""


ADVICE: Mapping[str, str] = {
    "weights": "Return one finite weight >= 0 for each update, and keep only arrays of numbers in "
    "`state`.",
    "arrival": "Let `weight` give the weights of `weigh`, or declare `weights = 'at-close'`.",
    "order": "Compute nothing from the place of an update among the others: sort by the client's "
    "name before you add floating-point numbers up.",
    "one-client": "Do not divide by the number of updates minus one, and let `suffices` refuse a "
    "round that is too small.",
    "agreement": "Let `normaliser` be the sum of the weights, or declare an exception if the rule "
    "is no mean.",
    "empty-round": "Change `state` only if there are updates.",
    "duplicates": "Keep what you remember in `state` and nothing in attributes, because the server "
    "may ask twice.",
    "extremes": "Compute in float64, and bound what you divide by.",
    "state": "Keep numbers in `state` as arrays with the dtype with which they are read again.",
    "crash": "Keep what you remember in `state`, because nothing else survives a crash.",
    "inputs": "Copy an array before you change it: the state, the model and the updates are the "
    "server's.",
    "masks": "Leave a coordinate that nobody trained as it is, or refuse masks in `refusals`.",
    "splitting": "Let a weight be proportional to the number of examples, or declare an exception.",
    "absentees": "Compute only with the updates that came, or declare an exception if the rule "
    "weighs by the population.",
    "staleness": "Multiply each weight by `contribution.discount`, or declare `discounts = False`.",
    "coordinates": "Combine each coordinate only from its own values.",
}
"""What to do if a rule breaks a law, by the law's name."""


def law(name: str, **options: Any) -> Callable[[Check], Test]:
    """Make a test of a check that holds for every course.

    Args:
        name: the name by which a rule declares that the law does not apply to it.
        options: what courses must be like, as parameters of `courses`.
    """

    def decorate(check: Check) -> Test:
        @wraps(check)
        def test(self: "RuleLaws") -> None:
            if name in self.exceptions:
                pytest.skip(f"{name}: {self.exceptions[name]}")
            each = courses(vectors_each=self.parsed().vectors(), **options)
            try:
                for_all(each, lambda course: check(self, course), self.examples)
            except Exception as error:
                error.add_note(f"What to do ({name}): {ADVICE[name]}")
                raise

        del test.__wrapped__  # pytest would take `course` for a fixture
        test.law = name  # type: ignore[attr-defined]
        return test

    return decorate


class RuleLaws:
    """Derive a test class from it and name the rule.

    Attributes:
        rule: the rule; or, as in `server.aggregator` of a scenario, its name or a table.
        exceptions: the names of the laws that do not apply to the rule, each with the reason.
        examples: the number of courses with which each law is tried.
    """

    rule: ClassVar[Aggregator | str | Mapping[str, Any]]
    exceptions: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[int] = 25

    @classmethod
    def laws(cls) -> dict[str, str]:
        """The names of the laws, each with the name of its test."""
        tests = ((name, getattr(cls, name)) for name in dir(cls) if name.startswith("test_"))
        return {test.law: name for name, test in tests if hasattr(test, "law")}

    @classmethod
    def parsed(cls) -> Aggregator:
        """A new object of the rule, which has its settings and nothing else."""
        rule = AGGREGATORS.parse(cls.rule)
        if not isinstance(rule, Aggregator):
            raise TypeError(f"{cls.__name__}.rule is {rule!r}; expected an aggregator")
        return renewed(rule)

    def run(self, course: MadeUpCourse, **how: bool) -> list[RulePoint]:
        """Play a course with the rule and return where it stood after each round."""
        return RuleRun(self.parsed(), course, **how).play()

    def test_exceptions_are_of_laws_that_exist(self) -> None:
        unknown = self.exceptions.keys() - self.laws().keys()
        assert not unknown, f"there is no law {sorted(unknown)}; the laws are {sorted(self.laws())}"
        silent = sorted(name for name, reason in self.exceptions.items() if not reason.strip())
        assert not silent, f"the exceptions {silent} say no reason"

    @law("weights")
    def test_weights_are_possible_and_can_be_written_down(self, course: MadeUpCourse) -> None:
        """One finite weight >= 0 for each update; estimates and state fit into the ledger."""
        for point in self.run(course):
            if point.weighing is not None:
                json.dumps(dict(point.weighing.estimates), allow_nan=False)
            for name, array in point.state.items():
                kind = np.asarray(array).dtype
                assert kind.kind in "biuf", f"the array {name!r} of the state has the dtype {kind}"
            require_model(point.model, course, "the model")
            require_model(point.offered, course, "the result")

    @law("arrival")
    def test_the_weights_on_arrival_are_those_at_close(self, course: MadeUpCourse) -> None:
        """If updates are folded on arrival, `weight` gives the weights that `weigh` gives."""
        rule = self.parsed()
        if not rule.folds_on_arrival():
            return
        run = RuleRun(rule, course)
        for round in course.rounds:
            state = run.points[-1].state
            weighing = run.round(round).weighing
            if weighing is None:
                continue
            on_arrival = [rule.weight(u.contribution, state) for u in round.updates]
            assert on_arrival == list(weighing.weights), (
                f"`weight` gives {on_arrival}, with which the server adds the updates up, and "
                f"`weigh` gives {list(weighing.weights)}; take weights = 'at-close', or let them "
                f"be the same"
            )

    @law("order", least_here=3)
    def test_the_order_of_arrivals_changes_no_bit(self, course: MadeUpCourse) -> None:
        """Updates that arrive in another order give the same model and the same state."""
        expected = self.run(course)
        for place in (1, 2, -1):
            other = [
                replace(r, updates=_turned(r.updates, place) if place > 0 else r.updates[::-1])
                for r in course.rounds
            ]
            require_same(expected, self.run(replace(course, rounds=other)), "in another order")

    @law("one-client", least_here=1, most_here=1)
    def test_a_round_with_one_client_makes_a_finite_model(self, course: MadeUpCourse) -> None:
        """The smallest round is a round."""
        for point in self.run(course):
            require_model(point.model, course, "the model")

    @law("agreement", least_here=1, rounds=1)
    def test_clients_that_agree_move_the_model_by_their_update(self, course: MadeUpCourse) -> None:
        """The weights are those of a mean: their sum, divided by the normaliser, is 1."""
        [round] = course.rounds
        delta = round.updates[0].delta
        agreed = [replace(update, delta=delta) for update in round.updates]
        point = self.run(replace(course, rounds=[replace(round, updates=agreed)]))[-1]
        if point.weighing is None or not point.weighing.normaliser:
            return  # the rule needs more updates
        expected = moved(course.model, delta[: len(course.model)].astype(np.float64))
        # The exact sum drops what is smaller than 2⁻⁸⁵; a mean rounds at most twice.
        close = np.abs(point.model - expected) <= 2 * np.spacing(np.abs(expected)) + 2.0**-80
        assert close.all(), (
            f"all clients sent {delta}, so the model {course.model} should become {expected}, but "
            f"it became {point.model}"
        )

    @law("empty-round", least_here=1)
    def test_empty_rounds_change_nothing(self, course: MadeUpCourse) -> None:
        """Rounds without updates leave everything as it was, also for the rounds after them."""
        empty = [replace(r, updates=(), valuations={}) for r in course.rounds]
        between = [each for pair in zip(empty, course.rounds, strict=True) for each in pair]
        expected = self.run(course)
        found = self.run(replace(course, rounds=between))
        require_same(expected, found[::2], "with an empty round before each")

    @law("duplicates", least_here=1)
    def test_a_rule_that_is_asked_twice_answers_the_same(self, course: MadeUpCourse) -> None:
        """A duplicate or repeated update makes the server ask again; it must get the same weights,
        and the rule must remember nothing but its state."""
        rule, seen = self.parsed(), RuleRun(self.parsed(), course)
        for round in course.rounds:
            for _ in range(2):
                run = RuleRun(rule, replace(course, rounds=course.rounds[: len(seen.points) - 1]))
                run.play()
                again = run.round(round)
            point = seen.round(round)
            require_same([point], [again], "asked again")

    @law("extremes", least_here=3, extreme=True)
    def test_extreme_weights_and_magnitudes_stay_finite(self, course: MadeUpCourse) -> None:
        """2²⁶ examples, or updates from 2⁻¹⁴⁹ to 10⁵: the model stays finite, and the order of
        arrivals changes no bit."""
        expected = self.run(course)
        for point in expected:
            require_model(point.model, course, "the model")
        other = [replace(r, updates=r.updates[::-1]) for r in course.rounds]
        require_same(expected, self.run(replace(course, rounds=other)), "in another order")

    @law("state")
    def test_the_state_survives_being_written_and_read(self, course: MadeUpCourse) -> None:
        """A server that reads the state from its file goes on as one that never stopped."""
        for point in self.run(course):
            found = point._replace(state=restored(point.state))
            require_same([point], [found], "written and read")

    @law("crash")
    def test_a_crash_at_every_commit_changes_no_bit(self, course: MadeUpCourse) -> None:
        """Before each commit the round is lost and made again; after it, the server starts anew
        with the state and the remembered updates that were committed."""
        require_same(self.run(course), self.run(course, crashes=True), "with crashes")

    @law("inputs", least_here=1)
    def test_a_rule_does_not_write_into_what_it_is_given(self, course: MadeUpCourse) -> None:
        """The state, the model and the updates are the server's."""
        rule = self.parsed()
        run = RuleRun(rule, course)
        for round in course.rounds:
            before = _copied(run.points[-1].state)
            point = run.points[-1]
            run.round(round)
            require_same([point._replace(state=before)], [point], "after the round")

    @law("masks", least_here=1)
    def test_a_coordinate_that_nobody_trained_stays(self, course: MadeUpCourse) -> None:
        """With masks, coordinates move by what their devices trained; updates of the whole model
        give what they give without masks. A rule without masks refuses them."""
        rule = self.parsed()
        if _refuses(rule, [Withholder.MASK], masked=True):
            return
        assert rule.adds_parts(), (
            f"the rule does not refuse masks, but has masks = {rule.masks} and weighs = "
            f"{rule.weighs!r}; expected True and 'updates', and a rule that adds the weighted sum"
        )
        before = course.model
        points = self.run(course, masked=True)
        for round, point in zip(course.rounds, points[1:], strict=True):
            trained = np.zeros(len(before), np.bool_)
            for update in round.updates:
                assert update.trained is not None
                trained |= update.trained
            kept = before[~trained].tobytes() == point.model[~trained].tobytes()
            assert kept, f"{before} became {point.model}; nobody trained {np.flatnonzero(~trained)}"
            before = point.model
        whole = [
            replace(r, updates=[replace(u, trained=np.ones_like(u.trained)) for u in r.updates])
            for r in course.rounds
        ]
        if rule.compensates():
            found = self.run(replace(course, rounds=whole), masked=True)
            for expected, point in zip(self.run(course), found, strict=True):
                np.testing.assert_allclose(point.model, expected.model, rtol=1e-6, atol=1e-30)

    @law("splitting", least_here=1)
    def test_a_client_that_is_split_counts_as_before(self, course: MadeUpCourse) -> None:
        """Two clients with half of the examples each, and the same update, count as the one."""
        devices = [*course.devices, *(_twin(d) for d in course.devices if d.enrolled)]
        split = [
            replace(r, updates=[half for update in r.updates for half in _halves(update)])
            for r in course.rounds
        ]
        whole = replace(course, devices=devices)
        require_same(self.run(whole), self.run(replace(whole, rounds=split)), "when split")

    @law("absentees")
    def test_devices_that_never_take_part_have_no_influence(self, course: MadeUpCourse) -> None:
        """Enrolled devices that are never there change nothing."""
        absent = [MadeUpDevice(f"absent-{place}") for place in range(3)]
        more = replace(course, devices=[*course.devices, *absent])
        for found, expected in zip(self.run(more), self.run(course), strict=True):
            same = found.model.tobytes() == expected.model.tobytes()
            assert same, (
                f"the model is {expected.model}, and {found.model} if three more devices are "
                f"enrolled that never take part"
            )

    @law("staleness", least_here=1, rounds=1)
    def test_a_stale_update_counts_by_the_discount_of_the_mode(self, course: MadeUpCourse) -> None:
        """The discount of an update multiplies its weight, or the rule refuses discounts."""
        rule = self.parsed()
        if _refuses(rule, _OF_STALENESS, discounts=True):
            return
        [round] = course.rounds
        stale = [
            replace(u, contribution=u.contribution._replace(staleness=1, discount=0.5))
            for u in round.updates
        ]
        fresh = self.run(course)[-1].weighing
        found = self.run(replace(course, rounds=[replace(round, updates=stale)]))[-1].weighing
        if fresh is None or found is None:
            return
        expected = [weight / 2 for weight in fresh.weights]
        assert list(found.weights) == pytest.approx(expected), (
            f"updates with the discount 0.5 have the weights {list(found.weights)}; expected "
            f"{expected}, half of those of fresh ones. Multiply by `contribution.discount`, or "
            f"declare discounts = False, with which stale updates are refused"
        )

    @law("coordinates", least_here=1)
    def test_coordinates_are_combined_one_by_one(self, course: MadeUpCourse) -> None:
        """The server gives a rule that combines updates a block of coordinates at a time, so a
        coordinate must not depend on another one."""
        rule = self.parsed()
        if not isinstance(rule, Combining):
            return
        for round in course.rounds:
            matrix = np.array([update.delta for update in round.updates])
            together = rule.combine(matrix.copy(), len(matrix))
            for place in range(matrix.shape[1]):
                [alone] = rule.combine(matrix[:, place : place + 1].copy(), len(matrix))
                assert alone == together[place], (
                    f"the coordinate {place} of {matrix} is combined into {together[place]}, and "
                    f"into {alone} in a block of its own"
                )


LAWS = RuleLaws.laws()
"""The names of the laws, each with the name of its test."""


def require_same(expected: Sequence[RulePoint], found: Sequence[RulePoint], how: str) -> None:
    """Fail unless two runs have the same points, bit by bit.

    Args:
        how: what is different about the run `found`.
    """
    assert len(expected) == len(found)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        same = one.bits() == other.bits()
        assert same, f"{how}, point {number} is {_shown(other)}; expected {_shown(one)}"


def require_model(model: Vector, course: MadeUpCourse, what: str) -> None:
    """Fail unless a vector is a model of the course."""
    assert model.shape == course.model.shape, (
        f"{what} has the shape {model.shape}; expected {course.model.shape}"
    )
    assert model.dtype == np.float32, f"{what} has the dtype {model.dtype}; expected float32"
    assert np.isfinite(model).all(), f"{what} is {model}; expected finite entries"


def _shown(point: RulePoint) -> str:
    state = {name: np.asarray(array).tolist() for name, array in point.state.items()}
    return (
        f"the model {point.model.tolist()}, the result {point.offered.tolist()}, the state {state}"
    )


def _refuses(rule: Aggregator, withheld: Sequence[Withholder], **conditions: Any) -> bool:
    """Whether a scenario that suits the rule otherwise is refused under these conditions."""
    if any(excludes(rule.requires(), withholder) for withholder in withheld):
        return True
    return len(list(rule.refusals(_WORLD._replace(**conditions)))) > len(
        list(rule.refusals(_WORLD))
    )


def _copied(state: State) -> State:
    return {name: np.array(array) for name, array in state.items()}


def _turned(updates: Sequence[MadeUpUpdate], by: int) -> Sequence[MadeUpUpdate]:
    return [*updates[by:], *updates[:by]]


def _twin(device: MadeUpDevice) -> MadeUpDevice:
    return replace(device, client=f"{device.client}-twin")


def _halves(update: MadeUpUpdate) -> list[MadeUpUpdate]:
    """An update of two clients that have the examples of one; of one client if there is only one
    example."""
    whole = update.contribution
    if whole.examples == 1:
        return [update]
    half = whole.examples // 2
    twin = f"{whole.client}-twin"
    return [
        replace(update, contribution=whole._replace(examples=whole.examples - half)),
        replace(update, contribution=whole._replace(client=twin, examples=half)),
    ]

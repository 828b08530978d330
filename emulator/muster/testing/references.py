"""Compares a rule with a function of NumPy, and a run with a golden one; measures how long a rule
takes."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from muster.common.clock import Clock, WallClock
from muster.common.seeds import FloatArray
from muster.emulator.runs.running import Run
from muster.server.aggregators import Aggregator, Contribution
from muster.testing.made_up import MadeUpCourse, MadeUpDevice, MadeUpRound, MadeUpUpdate
from muster.testing.rule_run import RuleRun
from muster.testing.strategies import courses, for_all


class ReferenceRound(NamedTuple):
    """A round as a reference sees it.

    Attributes:
        contributions: what the server knows of each update.
        deltas: the updates, float64, shape (updates, parameters).
    """

    contributions: Sequence[Contribution]
    deltas: FloatArray


Reference = Callable[[FloatArray, Sequence[ReferenceRound]], FloatArray]
"""Computes the model after some rounds from the initial model, both float64."""


def agrees_with(
    rule: Aggregator, reference: Reference, *, rtol: float = 1e-5, examples: int = 50
) -> None:
    """Assert that a rule makes the models that a reference makes.

    Args:
        reference: computes the model after all rounds, each of which has at least one update.
        rtol: the largest relative difference of an entry. Each round rounds the model to float32.
        examples: the number of courses with which it is tried.
    """

    def compare(course: MadeUpCourse) -> None:
        found = RuleRun(rule, course).play()[-1].model
        rounds = [
            ReferenceRound(
                [update.contribution for update in round.updates],
                np.array([update.delta for update in round.updates], np.float64),
            )
            for round in course.rounds
        ]
        expected = reference(course.model.astype(np.float64), rounds)
        np.testing.assert_allclose(
            found, expected, rtol=rtol, atol=rtol, err_msg=f"the rule {rule!r} and its reference"
        )

    for_all(courses(vectors_each=rule.vectors(), least_here=1), compare, examples)


class RuleTimes(NamedTuple):
    """How long a rule takes, with the arithmetic of the server around it.

    Attributes:
        seconds: of each round, in their order.
        state_bytes: the size of the rule's state after the last round.
    """

    seconds: Sequence[float]
    state_bytes: int

    @property
    def median_s(self) -> float:
        return float(np.median(self.seconds))


def benchmark_rule(
    rule: Aggregator,
    *,
    clients: int = 100,
    parameters: int = 100_000,
    rounds: int = 5,
    clock: Clock | None = None,
) -> RuleTimes:
    """Measure a rule with one thread, in rounds in which all clients take part."""
    draws, clock = np.random.default_rng(0), clock or WallClock()
    devices = [MadeUpDevice(f"device-{place}") for place in range(clients)]

    def update(device: MadeUpDevice) -> MadeUpUpdate:
        known = Contribution(
            device.client, "made-up", int(draws.integers(1, 1000)), 0, 1.0, 5.0, 1.0
        )
        entries = parameters * rule.vectors()
        return MadeUpUpdate(
            known._replace(learning_rate=0.1), draws.standard_normal(entries, np.float32)
        )

    same = MadeUpRound([update(device) for device in devices])
    run = RuleRun(rule, MadeUpCourse(devices, np.zeros(parameters, np.float32), []))
    seconds = []
    for _ in range(rounds):
        began = clock.monotonic()
        run.round(same)
        seconds.append(clock.monotonic() - began)
    state = run.points[-1].state.values()
    return RuleTimes(seconds, sum(np.asarray(array).nbytes for array in state))


WRITE_GOLDEN = "MUSTER_WRITE_GOLDEN"
"""The environment variable with which `assert_golden` writes files instead of comparing."""


def assert_golden(run: Run, file: Path) -> None:
    """Assert that a run is the one that a file has.

    In each round as many devices were called, accepted and counted, and the sum of the weights and
    the normaliser are the same. The model is the same too, if it was trained with the same numerics
    (docs/results.md, `fingerprint`). With the environment variable MUSTER_WRITE_GOLDEN=1 the file
    is written.
    """
    found = _golden_of(run)
    if os.environ.get(WRITE_GOLDEN) == "1":
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    assert file.exists(), f"there is no golden run {file}; write it with {WRITE_GOLDEN}=1"
    expected = json.loads(file.read_text(encoding="utf-8"))
    if found["fingerprint"] != expected["fingerprint"]:
        for each in (found, expected):
            each["model_sha256"] = each["fingerprint"] = "other numerics"
    for name in expected:
        assert found[name] == expected[name], (
            f"{name} of the run is not that of the golden run {file}: found {found[name]}, "
            f"expected {expected[name]}. If the change is meant, write it with {WRITE_GOLDEN}=1"
        )


def _golden_of(run: Run) -> dict[str, Any]:
    rounds = run.ledger.rounds[["called", "accepted", "folded", "weight_sum", "normaliser"]]
    columns = {
        str(name): [
            None if value != value else value for value in column.astype("float64").tolist()
        ]
        for name, column in rounds.items()
    }
    of_run = {name: run.summary[name] for name in ("status", "fingerprint", "model_sha256")}
    return {**of_run, **columns}

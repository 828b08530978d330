"""The study `fedplt`, on runs that never were."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from tests.studies.made import MadeResult, statements

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.fedplt.fleet import (
    DISAGREEING,
    LIMIT_MASKS,
    MANY,
    NO_MASK,
    STATIC,
    Masks,
)
from muster.studies.fedplt.known import limits, masks_of, overshoot, path
from muster.studies.fedplt.static_fleet import BOUNDARY_STEPS, HALF, SKEWED, UNDAMPED, linear
from muster.studies.fedplt.study import FedPltStudy
from muster.tasks.synthetic import OpenSynthetic

STUDY = FedPltStudy(kind="fedplt")
QUICK = Options(quick=True, seeds=2)
FULL = Options(seeds=5)

START = 2.3

Course = Callable[[StudyRun, np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def loss(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The loss after a share of the rounds."""
    labels = run.labels
    if run.part == "psi":
        speed = float(labels.get("scaled_by", 1.0))
        if labels.get("psi") is False:
            speed = float(labels["capacity"]) * 1.02
        return np.asarray(START - 1.7 * speed * share)
    if run.part == "overshoot" and labels["masks"] != NO_MASK and labels["steps"] == MANY:
        return np.asarray(START + 4 * np.sin(np.pi * share))
    if run.part == "network":
        undamped = labels.get("masks") == STATIC and labels["server"] == UNDAMPED
        return START + (4 if undamped else -1.5) * share
    if run.part == "boundary":
        far = labels["steps"] == max(BOUNDARY_STEPS) and labels["server"] == UNDAMPED
        return START + (4 if far else -1.5) * share
    if run.part == "labels" and labels["masks"] == STATIC:
        return START - 0.4 * share + 1.2 * share**2
    return START - 1.5 * share


def distance(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The distance to the minimiser after a share of the rounds."""
    if run.part == "floor":
        return np.full(len(share), np.sqrt(float(run.labels["rate"])))
    if run.part in ("static", "static decay"):
        return np.full(len(share), 1.0)
    if run.part == "decay":
        return np.asarray(np.sqrt(1e-3 / np.maximum(share, 1e-3)))
    grows = run.part == "curvature" and run.labels["masks"] == STATIC
    return np.asarray(np.exp(2 * share if grows else -2 * share))


def result_of(
    run: StudyRun, loss: Course = loss, distance: Course = distance, ended: bool = True
) -> MadeResult:
    rounds, every = run.scenario.server.rounds, run.scenario.server.evaluate_every
    at = np.arange(0, rounds + 1, every)
    share, losses = at / rounds, loss(run, at / rounds)
    distances = distance(run, share) * (1 + (run.scenario.seed - 100) / 1000)
    table = pd.DataFrame(
        {
            "round": at,
            "loss": losses,
            "accuracy": 1 - losses / 3,
            "metrics": [json.dumps({"distance": value}) for value in distances],
        }
    )

    def vector() -> np.ndarray[Any, Any]:
        if run.part == "path":
            return path(run.scenario).end
        static, best = limits(run.scenario)
        if run.part == "static decay":
            return static + 0.2 * (best - static)
        return static if run.labels["masks"] == STATIC else best + 0.1 * (static - best)

    sent = 1e6 * float(run.labels.get("capacity", 1.0))
    return MadeResult(
        run, {"evaluations": table}, ended=ended, summary={"bytes_up": sent}, vector=vector
    )


def judged(options: Options = QUICK, **made: Any) -> dict[str, Claim]:
    runs = STUDY.runs(options)
    return statements(STUDY.judge(Results([result_of(run, **made) for run in runs]), options))


def failing(found: dict[str, Claim]) -> list[str]:
    return [text for text, claim in found.items() if not claim.holds]


@pytest.mark.parametrize("options", [QUICK, FULL])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options) -> None:
    assert not failing(judged(options))


def test_every_claim_says_why() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    assert not [claim.claim for claim in findings.claims if not claim.why]


def test_no_claim_holds_without_its_run() -> None:
    assert all(not claim.holds for claim in judged(ended=False).values())


def test_floors_that_grow_with_the_square_of_the_step_fail() -> None:
    def squares(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if run.part == "floor":
            return np.full(len(share), float(run.labels["rate"]))
        return distance(run, share)

    assert {text.split(":")[0] for text in failing(judged(distance=squares))} == {"floor", "decay"}


def test_a_decay_as_one_over_the_root_fails() -> None:
    def slow(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return distance(run, share) ** (0.5 if run.part == "decay" else 1)

    assert any("slope of log D" in text for text in failing(judged(distance=slow)))


def test_masks_that_train_as_fast_without_psi_fail() -> None:
    def alike(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if run.part == "psi":
            return START - 1.7 * share
        return loss(run, share)

    failed = failing(judged(loss=alike))
    assert sum("lose by leaving out ψ" in text for text in failed) == 2


def test_masks_that_are_worse_with_psi_fail() -> None:
    def worse(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return loss(run, share) + (0.2 * share if run.labels.get("psi") is True else 0)

    failed = failing(judged(loss=worse))
    assert sum("with ψ, masks of" in text for text in failed) == 2


def test_masks_that_are_stable_fail_what_is_said_of_instabilities() -> None:
    def calm(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return loss(run, share) if run.part == "psi" else START - 1.5 * share

    def near(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.exp(-share) if run.part == "curvature" else distance(run, share)

    failed = failing(judged(loss=calm, distance=near))
    parts = [text.split(":")[0] for text in failed]
    assert {part: parts.count(part) for part in parts} == {
        "network, alike data": 1,
        "network, skewed data": 1,
        "boundary": 1,
        "overshoot": 1,
        "curvature": 2,
        "labels": 4,
    }


def test_where_static_masks_lead_no_entry_moves() -> None:
    scenario = DISAGREEING.scenario(7, 10, LIMIT_MASKS[STATIC])
    static, best = limits(scenario)
    masks = np.array(masks_of(scenario, len(static)))
    assert (masks.sum(axis=0) == len(masks) // 2).all()  # half of the devices for every entry
    assert np.linalg.norm(static - best) > 0.1
    whole = limits(DISAGREEING.scenario(7, 10, Masks(STATIC, 1.0)))
    np.testing.assert_allclose(whole[0], whole[1], atol=1e-6)


def test_figures_and_tables_have_every_run() -> None:
    runs = STUDY.runs(QUICK)
    findings = STUDY.judge(Results([result_of(run) for run in runs]), QUICK)
    assert all(isinstance(figure.draw(), Figure) for figure in findings.figures)
    tables = {table.name: table.frame for table in findings.tables}
    for name, part in (("psi", "psi"), ("networks", "network"), ("boundary", "boundary")):
        assert len(tables[name]) == sum(run.part == part for run in runs) // QUICK.seeds


def test_a_round_of_parts_is_the_block_jacobi_iteration_if_devices_train_for_long() -> None:
    # H = [[1, c], [c, 1]] in two parts: x ← −c·(x₂, x₁), with the radius c = 0.9. Damped by ½, the
    # eigenvalues −c and c become ½ − c/2 and ½ + c/2 = 0.95.
    hessian = np.array([[1.0, 0.9], [0.9, 1.0]])
    parts = np.eye(2, dtype=bool)
    assert overshoot(hessian, parts, rate=0.5, steps=200) == pytest.approx(0.9, abs=1e-3)
    assert overshoot(hessian, parts, 0.5, 200, damping=0.5) == pytest.approx(0.95, abs=1e-3)
    # Three unknowns that depend on each other by c: −2c. With c = 0.9 a radius of 1.8, above 1;
    # half of the step has 1 − 0.5·(1 + 1.8) = −0.4, and 1 − 0.5·0.1 = 0.95.
    three = np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    assert overshoot(three, np.eye(3, dtype=bool), 0.5, 200) == pytest.approx(1.8, abs=1e-3)
    assert overshoot(three, np.eye(3, dtype=bool), 0.5, 200, 0.5) == pytest.approx(0.95, abs=1e-3)
    # One local step on the whole model: 1 − η·λ.
    assert overshoot(three, np.ones((2, 3), bool), 0.5, 1) == pytest.approx(0.95, abs=1e-3)


def test_the_path_ends_at_the_limit_and_its_alignments_are_those_of_the_definition() -> None:
    scenario = linear(SKEWED, 0.02, full=True).scenario(3, 600, HALF)
    found, (limit, best) = path(scenario), limits(scenario)
    # With several local steps the path ends near the limit, and not at it.
    assert np.linalg.norm(found.end - limit) < 0.1 * np.linalg.norm(limit - best)
    assert found.alignments.shape == (601, scenario.devices)
    # At 0 by hand, for the first device: ⟨m⊙∇F, −θ*⟩ / ⟨∇F, −θ*⟩ with ∇F = −Xᵀy/n.
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    assert isinstance(opened, OpenSynthetic)
    x, y = opened.design(0)
    gradient, mask = x.T @ y / len(x), masks_of(scenario, len(best))[0]
    expected = (gradient * mask) @ best / (gradient @ best)
    assert found.alignments[0, 0] == pytest.approx(expected)


def test_static_masks_that_lead_to_the_minimiser_fail() -> None:
    def falling(run: StudyRun, share: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if run.part == "static decay":
            return np.asarray(np.sqrt(1e-3 / np.maximum(share, 1e-3)))
        return distance(run, share)

    texts = failing(judged(distance=falling))
    assert texts
    assert all("slope" in text for text in texts)

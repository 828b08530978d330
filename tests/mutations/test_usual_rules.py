"""Defects of the usual rules and of privacy, each of which breaks claims of the study."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.mutations.conftest import Judge

from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregation import aggregation
from muster.server.aggregators import krum, q_fedavg
from muster.server.aggregators.fedadam import FedAdam
from muster.server.aggregators.fednova import FedNova
from muster.server.aggregators.median import Median
from muster.server.aggregators.oracle_ipw import OracleIpw
from muster.server.aggregators.scaffold import Scaffold
from muster.server.aggregators.trimmed_mean import TrimmedMean
from muster.server.aggregators.values import Matrix, State
from muster.server.updates import folding, privacy
from muster.studies import StudyRun
from muster.studies.usual_rules.fleet import (
    CLIPPING,
    FEDADAM,
    FEDAVG,
    FEDNOVA,
    KRUM,
    MEDIAN,
    NOISE,
    ORACLE,
    Q1,
    Q5,
    SCAFFOLD,
    TRIMMED,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def failing(judged: Judge, *rules: str) -> list[str]:
    """The claims that do not hold although they have a number, if these rules and FedAvg run."""

    def needed(run: StudyRun) -> bool:
        return run.labels["rule"] in (FEDAVG, *rules)

    claims = judged("usual-rules", needed)
    measured = {text: c for text, c in claims.items() if not isinstance(c.measured, str)}
    assert measured
    return [text for text, claim in measured.items() if not claim.holds]


def has(found: Sequence[str], words: str) -> bool:
    return any(words in text for text in found)


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    rules = (FEDNOVA, SCAFFOLD, ORACLE, Q1, Q5, FEDADAM, MEDIAN, TRIMMED, KRUM, NOISE, CLIPPING)
    assert failing(judged, *rules) == []


def test_fednova_must_divide_by_steps(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedNova, "weight", lambda rule, contribution, state: contribution.examples)
    assert has(failing(judged, FEDNOVA), "fednova is less than half as far")


def test_scaffold_must_change_its_control_variate(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Scaffold.step

    def forgetful(rule: Scaffold, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        update, after = step(rule, mean, state)
        return update, {**after, "control": state["control"]}

    monkeypatch.setattr(Scaffold, "step", forgetful)
    found = failing(judged, SCAFFOLD)
    assert has(found, "one of six comes: the distance of scaffold")


def test_the_oracle_must_divide_by_probabilities(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh = OracleIpw.weigh

    def equal(rule: OracleIpw, cohort: object, state: State) -> object:
        found = weigh(rule, cohort, state)  # type: ignore[arg-type]
        weights = [1.0] * len(found.weights)
        return found._replace(weights=weights, normaliser=float(len(weights)))

    monkeypatch.setattr(OracleIpw, "weigh", equal)
    assert has(failing(judged, ORACLE), "oracle-ipw has the bias that fedavg has")


def test_q_fedavg_must_use_the_losses(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(q_fedavg, "_loss", lambda contribution: 1.0)
    assert has(failing(judged, Q1, Q5), "q-fedavg with q = 1 goes past the optimum")


def test_fedadam_must_take_short_steps_near_its_limit(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = FedAdam.step

    def even(rule: FedAdam, mean: FloatArray, state: State) -> tuple[FloatArray, State]:
        update, after = step(rule, mean, state)
        return rule.rate * np.sign(update), after

    monkeypatch.setattr(FedAdam, "step", even)
    assert has(failing(judged, FEDADAM), "fedadam has the bias of fedavg")


def test_a_median_must_not_be_a_mean(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(rule: Median, updates: Matrix, counted: int) -> FloatArray:
        return np.asarray(updates.mean(axis=0, dtype=np.float64))

    monkeypatch.setattr(Median, "combine", mean)
    found = failing(judged, MEDIAN)
    assert has(found, "median has a larger bias than fedavg")


def test_a_trimmed_mean_must_trim(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrimmedMean, "tolerated", lambda rule, size: 0)
    assert has(failing(judged, TRIMMED), "trimmed-mean has a larger bias than fedavg")


def test_krum_must_take_the_lowest_score(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = krum.ranked
    monkeypatch.setattr(krum, "ranked", lambda scores, clients: ranked(-scores, clients))
    assert has(failing(judged, KRUM), "krum has a larger bias than fedavg")


def test_updates_must_be_clipped(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "clipped_weight", lambda contribution, clip: 1.0)
    monkeypatch.setattr(folding, "clipped_weight", lambda contribution, clip: 1.0)
    assert has(failing(judged, CLIPPING), "clipping adds to the bias")


@pytest.mark.parametrize(("factor", "words"), [(0.0, "noise moves"), (20.0, "noise leaves")])
def test_noise_must_have_its_deviation(
    judged: Judge, monkeypatch: pytest.MonkeyPatch, factor: float, words: str
) -> None:
    noise_of = privacy.noise_of

    def other(*given: object) -> Vector:
        return noise_of(*given) * np.float32(factor)  # type: ignore[arg-type]

    monkeypatch.setattr(aggregation, "noise_of", other)
    assert has(failing(judged, NOISE), words)

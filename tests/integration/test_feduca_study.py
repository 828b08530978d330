"""Whole runs of the study `feduca`: its measures are those of the ledger and of the partition."""

from pathlib import Path

import numpy as np
import pytest

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.simulation.whole_run import simulate_run
from muster.studies import Result, StudyRun
from muster.studies.feduca.fleet import (
    ALWAYS,
    BINDING,
    COIN,
    EQUATION_1,
    FEDAVG,
    FEDUCA,
    INSTITUTES,
    PRINTED,
    SOLVE_FIRST,
    WARM_ROUNDS,
    WARM_START,
    UtilitySetting,
    clothes,
    scenario,
)
from muster.studies.feduca.measures import measures_of, participation

ROUNDS = 8


def played(folder: Path, method: str, test: str, setting: UtilitySetting | None = None) -> Result:
    data = clothes(None, 140, quick=True)
    read = scenario(data, 1, ROUNDS, method, test, setting or UtilitySetting())
    assert simulate_run(read, folder) == "completed"
    return Result(StudyRun("part", {"method": method, "test": test}, read, 1.0), folder)


def test_institutes_hold_the_labels_of_their_group_alone(tmp_path: Path) -> None:
    result = played(tmp_path, FEDAVG, ALWAYS)
    read = result.scenario
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    for place in range(INSTITUTES):
        labels = {*opened.client(place).y.tolist(), *opened.validation(place).y.tolist()}
        assert labels <= set(range(5) if place < 5 else range(5, 10))
    assert set(opened.examples) == {98}
    assert set(result.account.contributions["examples"]) == {98}
    assert participation(result.account).tolist() == [1.0] * ROUNDS


def test_the_server_foresees_decisions_and_keeps_weights_near_one_another(tmp_path: Path) -> None:
    result = played(tmp_path, SOLVE_FIRST, BINDING, UtilitySetting(dense=True))
    found = measures_of(result)
    assert found["mispredicted"] == 0
    assert found["refused"] == 0
    assert found["unsatisfied"] <= 0
    assert found["discrepancy excess"] <= 1e-6
    assert found["jensen gap"] > 0
    assert found["r squared"] <= 1
    assert 0 < found["participation"] < 1


@pytest.mark.parametrize(
    ("method", "test", "forced"),
    [(FEDAVG, EQUATION_1, 1), (WARM_START, EQUATION_1, WARM_ROUNDS), (FEDUCA, PRINTED, 1)],
)
def test_forced_rounds_have_everybody_and_then_institutes_leave(
    tmp_path: Path, method: str, test: str, forced: int
) -> None:
    result = played(tmp_path, method, test)
    shares = participation(result.account)
    assert shares.loc[:forced].tolist() == [1.0] * forced
    assert shares.loc[forced + 1 :].min() < 1
    if test == EQUATION_1:  # after forced rounds, exactly those accept that gain
        valued = result.account.valuations
        gains = valued[valued["round"] > forced].groupby("round")["gains"].sum() / INSTITUTES
        np.testing.assert_allclose(shares.loc[forced + 1 :], gains.astype("float64"))


def test_a_fedavg_under_the_printed_rule_is_one_that_everybody_joins(tmp_path: Path) -> None:
    printed = played(tmp_path / "printed", FEDAVG, PRINTED)
    always = played(tmp_path / "always", FEDAVG, ALWAYS)
    assert printed.vector.tobytes() == always.vector.tobytes()


def test_a_coin_is_no_judgement(tmp_path: Path) -> None:
    found = measures_of(played(tmp_path, FEDAVG, COIN))
    assert 0.2 < found["participation"] < 0.8
    assert found["weight change"] == 0

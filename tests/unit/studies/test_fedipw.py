import numpy as np
import pytest

from muster.emulator.fleet.closed_forms import prop_e1
from muster.emulator.fleet.lives import task_of
from muster.emulator.fleet.population import population
from muster.emulator.studies.claims import Claim
from muster.emulator.studies.fedipw import study as fedipw
from muster.emulator.studies.fedipw.fleet import (
    BY_MEANS,
    LARGE,
    NOISES,
    RULES,
    SMALL,
    STRENGTHS,
    intercept,
    least_loss,
    scenario,
)
from muster.emulator.studies.fedipw.measures import left_by
from muster.emulator.studies.fedipw.study import FedIpwStudy
from muster.emulator.studies.study import Options
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.oracle_ipw import OracleIpw


def test_every_rule_is_run_with_every_strength_and_every_error_of_the_means() -> None:
    runs = FedIpwStudy(kind="fedipw").runs(Options(seeds=5))
    labels = [(run.part, *sorted(run.labels.items()), run.scenario.seed) for run in runs]
    assert len(labels) == len({str(label) for label in labels})
    parts = {part: [run for run in runs if run.part == part] for part in "ABCD"}
    assert len(parts["A"]) == 5 * len(RULES)
    assert len(parts["B"]) == 5 * len(RULES) * (len(STRENGTHS) - 1)
    assert len(parts["C"]) == 5
    assert len(parts["D"]) == 5 * len(NOISES) + 35 * len(("participation-ipw", SMALL, LARGE))
    assert sum(run.expected_s for run in runs) < 2 * 3600
    quick = FedIpwStudy(kind="fedipw").runs(Options(quick=True, seeds=1))
    assert sum(run.expected_s for run in quick) < 180


def test_what_is_compared_differs_in_the_rule_alone() -> None:
    first, second = (scenario(40, 5, 7, RULES[rule]) for rule in ("fedavg", "fedipw"))
    server = {"server": first.server}
    assert second.model_copy(update=server) == first
    lives = [population(read) for read in (first, second)]
    assert lives[0] == lives[1]


def test_stronger_enrollment_bias_enrolls_as_many() -> None:
    shares = [
        np.mean(
            [
                resident.propensity
                for resident in population(scenario(4000, 5, 1, RULES["fedavg"], s))
            ]
        )
        for s in STRENGTHS
    ]
    assert shares == pytest.approx([0.4] * 3, abs=0.02)
    assert intercept(0.5, 2.0) == pytest.approx(0.0, abs=1e-9)


def test_means_with_errors_are_all_that_is_told() -> None:
    read = scenario(40, 5, 7, BY_MEANS, noise=0.25)
    assert (read.server.information, read.server.moments_noise) == ("limited", 0.25)


def test_the_least_loss_is_below_that_of_any_other_parameters() -> None:
    read = scenario(30, 5, 7, RULES["fedavg"])
    task = task_of(read, population(read)).open(30, 7)
    module = task.module()
    assert least_loss(read) < task.metrics(module)["loss"]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.9])
def test_what_a_rule_leaves_two_clients_follows_from_its_weights(epsilon: float) -> None:
    case = prop_e1(epsilon)
    assert left_by(OracleIpw(kind="oracle-ipw"), case) == pytest.approx(0.0, abs=1e-12)
    # Without the propensity of enrollment, or with one that is cut off, a part of ε·a remains.
    assert left_by(FedAvg(kind="fedavg"), case) == pytest.approx(case.limit)
    cut = OracleIpw(kind="oracle-ipw", floor=0.99)
    assert left_by(cut, case) == pytest.approx(case.limit, rel=0.1)


def test_the_claim_on_the_oracle_fails_for_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim() -> Claim:
        return list(fedipw.proposition_checks())[1]

    assert claim().claim == "E.1: the oracle's weights leave none"
    assert claim().holds
    monkeypatch.setattr(OracleIpw, "weigh", FedAvg.weigh)
    monkeypatch.setattr(OracleIpw, "weight", FedAvg.weight)
    assert not claim().holds

"""The study `selection-by-network`, on runs that never were."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.selection_by_network.claims import SHARE, predicted_gap
from muster.studies.selection_by_network.figure import AS_IT_IS
from muster.studies.selection_by_network.fleet import (
    CHANGES,
    DEADLINE_S,
    FEDIPW,
    HALF,
    IMPORTANCE,
    INT8,
    LONGEST,
    RULES,
    TOWN,
    TOWN_GAP,
    VALLEY,
    WITH_LINK,
    Setting,
    scenario,
)
from muster.studies.selection_by_network.measures import (
    CHANGED,
    DEADLINE,
    FREE,
    crowd,
    measures,
)
from muster.studies.selection_by_network.study import SelectionByNetworkStudy
from muster.tasks.synthetic import OpenSynthetic, Synthetic

STUDY = SelectionByNetworkStudy(kind="selection-by-network")
QUICK = Options(quick=True, seeds=1)
FULL = Options(seeds=5)

GAPS = {
    (FREE, "fedavg"): 0.16,
    (FREE, FEDIPW): 0.02,
    (FREE, "oracle-ipw"): 0.03,
    (DEADLINE, "participation-ipw"): 0.23,
    (DEADLINE, FEDIPW): 0.13,
    (DEADLINE, "oracle-ipw"): 0.15,
    (DEADLINE, IMPORTANCE): 0.11,
    (DEADLINE, WITH_LINK): 0.06,
    (CHANGED, INT8): 0.02,
    (CHANGED, HALF): 0.04,
    (CHANGED, LONGEST): 0.03,
    (CHANGED, "deadline 0.096 s"): 0.08,
    (CHANGED, "deadline 0.064 s"): 0.4,
}
"""Shares of the town's gap. The deadline adds .11 to that of FedIPW, and (1 - 2/3)² is .111."""
WEIGHTS = {IMPORTANCE: 2.0, WITH_LINK: 3.0}
"""What an update of the valley weighs, of rules for which that is not 1."""
SIZES = {WITH_LINK: 4.0, INT8: 9.0, HALF: 5.0}
"""Effective sizes that are not 6."""


def result_of(
    run: StudyRun,
    gaps: dict[tuple[str, str], float] = GAPS,
    ended: bool = True,
    reason: str = "deadline",
    sizes: dict[str, float] = SIZES,
) -> MadeResult:
    """A result with two devices of the town, which always come, and three of the valley.

    In odd rounds all three come, and where there is a deadline two of them are late; in even rounds
    one comes.
    """
    rounds = run.scenario.server.rounds
    name = str(run.labels.get("change", run.labels["rule"]))
    gap = gaps.get((run.part, name), 0.3) * by_seed(run.scenario.seed)
    # The start is far off, and must not count.
    ends = (9.0, (2 * gap * TOWN_GAP) ** 0.5)
    distances = [json.dumps({"distance": distance}) for distance in ends]
    books = tables(rounds, run.part != FREE, WEIGHTS.get(name, 1.0), reason)
    books["rounds"]["effective_size"] = sizes.get(name, 6.0)
    return MadeResult(
        run,
        {
            "evaluations": pd.DataFrame({"round": [1, rounds], "metrics": distances}),
            **books,
        },
        ended=ended,
        summary={"rounds": rounds, "updates_folded": 3 * rounds, "bytes_up": 256 * rounds},
    )


def by_seed(seed: int) -> float:
    """The factor by which the gaps of a seed differ: 1.01 for 101."""
    return 1 + (seed - 100) / 100


def tables(rounds: int, deadline: bool, weight: float, reason: str) -> dict[str, pd.DataFrame]:
    devices = {"town-0": TOWN, "town-1": TOWN, "valley-0": VALLEY, "valley-1": VALLEY,
               "valley-2": VALLEY}  # fmt: skip
    rows = []
    for number in range(1, rounds + 1):
        for client, group in devices.items():
            if number % 2 == 0 and client in ("valley-1", "valley-2"):
                continue
            late = deadline and group == VALLEY and number % 2 == 1 and client != "valley-0"
            rows.append(
                {
                    "round": number,
                    "client": client,
                    "weight": weight if group == VALLEY else 1.0,
                    "outcome": "late" if late else "folded",
                    "reason": reason if late else pd.NA,
                }
            )
    sent = pd.DataFrame(rows)
    folded = sent[sent["outcome"] == "folded"].groupby("round")
    books = pd.DataFrame(
        {
            "round": range(1, rounds + 1),
            "accepted": sent.groupby("round").size().to_numpy(),
            "folded": folded.size().to_numpy(),
            "normaliser": folded["weight"].sum().to_numpy(),
        }
    )
    clients = pd.DataFrame({"client": list(devices), "group": list(devices.values())})
    return {"contributions": sent, "rounds": books, "clients": clients}


def judged(options: Options, **made: Any) -> dict[str, Claim]:
    results = Results([result_of(run, **made) for run in STUDY.runs(options)])
    return statements(STUDY.judge(results, options))


def failing(claims: dict[str, Claim]) -> list[str]:
    return [text for text, claim in claims.items() if not claim.holds]


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "runs", "minutes"), [(FULL, 5 * 17, 25), (QUICK, 14, 3)])
def test_every_rule_is_run_under_the_deadline(options: Options, runs: int, minutes: float) -> None:
    planned = STUDY.runs(options)
    assert len({run.title for run in planned}) == len(planned) == runs
    assert sum(run.expected_s for run in planned) < 60 * minutes
    for seed in options.all_seeds:
        under = [r for r in planned if r.part == DEADLINE and r.scenario.seed == seed]
        assert [run.labels["rule"] for run in under] == list(RULES)


def test_rules_of_a_seed_differ_in_the_rule_alone() -> None:
    first, second = (scenario(7, 5, rule, Setting()) for rule in (FEDIPW, WITH_LINK))
    aggregator = {"aggregator": first.server.aggregator}
    assert second.server.model_copy(update=aggregator) == first.server
    assert second.groups == first.groups


def test_what_is_changed_leaves_lives_as_they_are() -> None:
    lives = population(scenario(7, 5, FEDIPW, Setting()))
    for setting in (Setting(deadline_s=None), *CHANGES.values()):
        assert population(scenario(7, 5, FEDIPW, setting)) == lives


def test_only_one_rule_is_told_who_is_behind_the_link() -> None:
    told = [rule for rule, settings in RULES.items() if "behind" in str(settings)]
    assert told == [WITH_LINK]
    for settings in RULES.values():
        if settings["kind"] == "fedipw":
            assert settings["enrollment"]["z"] == ["z1", "z2"], "absent would be all"
            assert settings["participation"]["z"][:2] == ["z1", "z2"]


def test_town_and_valley_differ_in_link_and_data_alone() -> None:
    town, valley = scenario(7, 5, FEDIPW, Setting()).groups
    apart = ("name", "shared_link", "devices_per_process", "covariates")
    assert valley.model_copy(update={name: getattr(town, name) for name in apart}) == town
    z = {name: valley.covariates.z[name] for name in ("z1", "z2")}
    assert z == {name: town.covariates.z[name] for name in ("z1", "z2")}
    assert valley.covariates.x == town.covariates.x
    # A pack would fetch the model once for all its devices.
    assert valley.devices_per_process == 1
    assert valley.count / (town.count + valley.count) == SHARE


def test_the_link_carries_a_dozen_in_time_and_twice_as_many_with_int8() -> None:
    read = scenario(7, 5, FEDIPW, Setting())
    assert isinstance(read.task, Synthetic)
    link, size = read.groups[1].shared_link, 4 * read.task.dimension
    assert link.up is not None
    assert link.down is not None
    each_s = 8 * size / link.up + 8 * size / link.down
    assert 12 < DEADLINE_S / each_s < 16
    smaller_s = 8 * size / 4 / link.up + 8 * size / link.down
    assert DEADLINE_S / smaller_s > 24


def test_half_the_squared_distance_is_the_gap() -> None:
    read = scenario(7, 5, FEDIPW, Setting())
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenSynthetic)
    assert isinstance(read.task, Synthetic)
    off = np.random.default_rng(1).standard_normal(read.task.dimension)
    losses = []
    for theta in (opened.optimum(), opened.optimum() + off):
        errors = [x @ theta - y for x, y in map(opened.design, range(read.devices))]
        losses.append(np.mean(np.square(errors)) / 2)
    assert losses[1] - losses[0] == pytest.approx(off @ off / 2, rel=1e-4)


def test_the_effects_of_covariates_on_data_are_the_same_with_every_seed() -> None:
    for seed in (7, 8):
        read = scenario(seed, 5, FEDIPW, Setting())
        residents = population(read)
        opened = task_of(read, residents).open(read.devices, read.seed)
        assert isinstance(opened, OpenSynthetic)
        town = [float(resident.group == TOWN) for resident in residents]
        off = opened.minimiser(town) - opened.optimum()
        # The third coordinate is that of `behind`; the others depend on the drawn z1 and z2.
        assert off[2] ** 2 / 2 == pytest.approx(TOWN_GAP, rel=1e-5)
        assert off[3:] == pytest.approx(0, abs=1e-5)


# --- what is measured ----------------------------------------------------------------------------


def made(part: str, rule: str, **more: Any) -> MadeResult:
    runs = [r for r in STUDY.runs(QUICK) if r.part == part and r.labels["rule"] == rule]
    return result_of(runs[0], **more)


def test_measures_of_a_run_are_those_that_a_person_counts() -> None:
    found = measures(made(DEADLINE, WITH_LINK))
    # Odd rounds: three of the valley, two late; even ones: one, in time. The town: always two.
    assert found["valley's share of accepted"] == pytest.approx(4 / 8)
    assert found["valley's share of folded"] == pytest.approx(2 / 6)
    assert found["late of the valley"] == pytest.approx(2 / 4)
    assert found["late"] == 40
    assert found["unexplained"] == 0
    assert found["crowding"] == pytest.approx(2 / 3)
    # One of the valley weighs 3, beside two of the town who weigh 1.
    assert found["valley's weight"] == pytest.approx(3 / 5)
    assert found["gap"] == pytest.approx(0.06 * 1.01)
    assert found["bytes up a round"] == 256


def test_rounds_count_alike_in_the_weight_whatever_their_normaliser() -> None:
    run = made(FREE, FEDIPW)
    even = run.account.contributions["round"] % 2 == 0
    run.account.contributions.loc[even, "weight"] *= 10
    run.account.rounds.loc[run.account.rounds["round"] % 2 == 0, "normaliser"] *= 10
    # Three of five in odd rounds, one of three in even ones.
    assert measures(run)["valley's weight"] == pytest.approx((3 / 5 + 1 / 3) / 2)


def test_a_loss_with_another_reason_is_not_explained() -> None:
    assert measures(made(DEADLINE, FEDIPW, reason="stale"))["unexplained"] == 40


def test_a_crowd_is_those_of_the_valley_that_came() -> None:
    rounds = crowd(made(DEADLINE, FEDIPW))
    assert rounds["came"].tolist()[:4] == [3, 1, 3, 1]
    assert rounds["late"].tolist()[:2] == pytest.approx([2 / 3, 0])


# --- what is claimed -----------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "claims"), [(FULL, 22), (QUICK, 22)])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options, claims: int) -> None:
    found = judged(options)
    assert failing(found) == []
    assert len(found) == claims


def test_weights_that_do_without_the_link_break_what_is_said_of_it() -> None:
    broken = failing(judged(FULL, gaps={**GAPS, (DEADLINE, FEDIPW): 0.02}))
    assert any("to the gap of FedIPW" in text for text in broken)
    assert any("told of the link" in text for text in broken)
    assert any("int8" in text for text in broken)
    assert not any("oracle" in text for text in broken)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("gaps", "words"),
    [
        ({(DEADLINE, FEDIPW): 0.2}, "(1 - 2w)²"),
        ({(DEADLINE, "oracle-ipw"): 0.12}, "that of the oracle too"),
        ({(DEADLINE, WITH_LINK): 0.1}, "told of the link avoids"),
        ({(DEADLINE, "participation-ipw"): 0.1}, "participation-only weights"),
        ({(FREE, "fedavg"): 0.03}, "less than half the gap of FedAvg"),
        ({(CHANGED, HALF): 0.09}, "Calling half as many"),
        ({(CHANGED, LONGEST): 0.05}, "Waiting 0.12 s"),
        ({(CHANGED, "deadline 0.096 s"): 0.02}, "grows as the deadline is shorter"),
    ],
)
def test_a_gap_of_another_size_breaks_the_claim_that_states_it(
    gaps: dict[tuple[str, str], float], words: str
) -> None:
    for options in (FULL, QUICK):
        (broken,) = failing(judged(options, gaps={**GAPS, **gaps}))
        assert words in broken


def test_what_the_deadline_adds_is_judged_by_its_size() -> None:
    small = {(DEADLINE, FEDIPW): 0.1, (CHANGED, "deadline 0.096 s"): 0.05}
    broken = failing(judged(FULL, gaps={**GAPS, **small}))
    assert any("a tenth of the town's gap to the gap of FedIPW" in text for text in broken)


def test_weights_that_cost_no_precision_break_what_is_said_of_it() -> None:
    (broken,) = failing(judged(FULL, sizes={**SIZES, WITH_LINK: 8.0}))
    assert "larger by over 2 than if it is told of the link" in broken
    (broken,) = failing(judged(FULL, sizes={**SIZES, HALF: 8.0}))
    assert "larger by over 2 than if half are called" in broken


def test_the_gap_of_a_weight_is_that_of_the_town_if_the_valley_has_none() -> None:
    assert predicted_gap(0.0) == 1
    assert predicted_gap(0.5) == 0
    assert predicted_gap(0.25) == 0.25


def test_a_loss_that_nobody_explains_breaks_a_claim_alone() -> None:
    broken = failing(judged(FULL, reason="stale"))
    assert len(broken) == 1
    assert broken[0].startswith("The ledger has a reason")


def test_a_rule_on_which_it_depends_who_is_late_breaks_a_claim_alone() -> None:
    results = [result_of(run) for run in STUDY.runs(FULL)]
    odd = next(r for r in results if r.part == DEADLINE and r.labels["rule"] == IMPORTANCE)
    odd.account.contributions.at[4, "outcome"] = "folded"
    odd.account.contributions.at[4, "reason"] = pd.NA
    rounds = odd.account.rounds
    rounds.loc[rounds.index == 0, "folded"] += 1
    broken = failing(statements(STUDY.judge(Results(results), FULL)))
    assert len(broken) == 1
    assert broken[0].startswith("Who is late does not depend")


def test_runs_that_failed_break_claims_and_no_judgement() -> None:
    runs = STUDY.runs(QUICK)
    results = Results([result_of(run, ended=run.labels["rule"] != IMPORTANCE) for run in runs])
    findings = STUDY.judge(results, QUICK)
    claims = statements(findings)
    assert claims["Without the deadline FedIPW has less than half the gap of FedAvg"].holds
    broken = failing(claims)
    assert len(broken) == 4
    assert sum("importance" in text for text in broken) == 2
    nothing = Results([result_of(run, ended=False) for run in runs])
    assert failing(statements(STUDY.judge(nothing, QUICK))) == list(claims)


def test_tables_and_figures_have_every_rule_and_change() -> None:
    findings = STUDY.judge(Results([result_of(run) for run in STUDY.runs(FULL)]), FULL)
    table = findings.tables[0].frame
    assert len(table) == 2 * len(RULES) + len(CHANGES)
    first = table.iloc[0]
    assert (first["part"], first["rule"]) == (FREE, "fedavg")
    # .16 times 1.01 … 1.05
    assert first["gap"] == pytest.approx(0.16 * 1.03)
    assert first["sd of gap"] == pytest.approx(0.0016 * 2.5**0.5)
    drawn = {figure.name: figure.draw().axes for figure in findings.figures}
    assert list(drawn) == ["gaps", "weights", "prediction", "late"]
    gaps, weights, late = drawn["gaps"], drawn["weights"], drawn["late"]
    names = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in (*gaps, *weights)]
    assert names == [list(RULES), [AS_IT_IS, *CHANGES], list(RULES)]
    shortest = 0.4 * 1.05
    assert gaps[1].get_ylim()[1] > shortest, "the panels share an axis, and the bar is cut off"
    assert late[0].get_title(loc="left") == "50% of the valley's updates are late"
    dots = {
        cloud.get_label(): np.asarray(cloud.get_offsets()).shape[0]
        for cloud in drawn["prediction"][0].collections
    }
    assert dots == {"no deadline": 5, "deadlines": 20, "int8 or half called": 10}

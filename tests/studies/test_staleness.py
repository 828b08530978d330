"""The study `staleness`, on runs that never were."""

import json
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.studies.made import MadeResult, statements

from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.studies import Claim, Options, Results, StudyRun
from muster.studies.staleness.claims import LIMITED
from muster.studies.staleness.fleet import (
    BUFFERED,
    FAST,
    FEDASYNC,
    FEDVARP,
    LINKS,
    LIVES,
    METHODS,
    MIFA,
    OPPORTUNISTIC,
    OVER_SELECTED,
    REMEMBERING,
    SHARE,
    SLOW,
    SLOW_DEVICES,
    SYNCHRONOUS,
    StalenessSetting,
    fast_gap,
    predicted_gap,
    scenario,
)
from muster.studies.staleness.further import AT_FINISH, LONG, WEIGHED
from muster.studies.staleness.measures import (
    ALIKE,
    APART_PART,
    LINKED,
    PICTURES,
    STALE,
    course_of,
    measures,
)
from muster.studies.staleness.study import StalenessStudy
from muster.tasks.opening import open_task
from muster.tasks.synthetic import OpenSynthetic

STUDY = StalenessStudy(kind="staleness")
QUICK = Options(quick=True, seeds=2)
FULL = Options(seeds=5)

ROUNDS = 10
PULLS = {
    (SYNCHRONOUS, ""): 0.2,
    (OVER_SELECTED, ""): 0.02,
    (OPPORTUNISTIC, ""): 0.05,
    (BUFFERED, ""): 0.07,
    (FEDASYNC, ""): 0.06,
    (FEDVARP, ""): 0.2,
    (MIFA, ""): 0.2,
    (SYNCHRONOUS, "apart 1"): 0.2,
    (SYNCHRONOUS, "apart 2.5"): 0.2,
    (BUFFERED, "slowness 2"): 0.17,
    (BUFFERED, "slowness 5"): 0.11,
    (BUFFERED, "at once 4"): 0.16,
    (BUFFERED, "at once 40"): 0.03,
    (BUFFERED, "exponent 0.5"): 0.03,
    (BUFFERED, "exponent 1"): 0.01,
    (OPPORTUNISTIC, LIMITED): 0.0,
    (BUFFERED, AT_FINISH): 0.05,
    (BUFFERED, LINKS): 0.07,
    (SYNCHRONOUS, LIVES): 0.18,
    (BUFFERED, LIVES): 0.05,
}
"""Pulls and weights of the slow devices, by method and change; others have that of the method."""
SECONDS = {SYNCHRONOUS: 15.0, OVER_SELECTED: 5.0, OPPORTUNISTIC: 3.0, BUFFERED: 1.5, FEDASYNC: 2.0}
SECONDS |= dict.fromkeys(REMEMBERING, 3.0)
"""Seconds of a round. A gap falls from 8 to 30 % in each, so the fourth reaches the target."""
BYTES = {SYNCHRONOUS: 1000, OVER_SELECTED: 1300, OPPORTUNISTIC: 900, BUFFERED: 500, FEDASYNC: 50}
BYTES |= dict.fromkeys(REMEMBERING, 900)
STALE_GAPS = {(BUFFERED, ""): 1000.0, (BUFFERED, WEIGHED): 0.02, (SYNCHRONOUS, ""): 1e-9}
"""Gaps at which runs with long local training end."""
SLOW_LOSSES = {SYNCHRONOUS: 0.5, BUFFERED: 1.5}
"""Losses on the slow devices' digits."""
FLOORS = {"apart 1": 0.02, "apart 2.5": 0.1, "": 0.3}
"""Gaps at which the buffered mode ends with data apart."""


def result_of(
    run: StudyRun,
    pulls: dict[tuple[str, str], float] = PULLS,
    seconds: dict[str, float] = SECONDS,
    sent: dict[str, int] = BYTES,
    weights: dict[tuple[str, str], float] = PULLS,
    floor: float = 0.01,
    stale: dict[tuple[str, str], float] = STALE_GAPS,
    slow: dict[str, float] = SLOW_LOSSES,
    ended: bool = True,
) -> MadeResult:
    """A result of ten rounds, in each of which a fast and a slow device count."""
    method, change = str(run.labels["method"]), str(run.labels.get("change", ""))
    key = (method, change) if (method, change) in pulls else (method, "")
    by_seed = (run.scenario.seed - 103) / 1000
    pull = pulls[key] + by_seed
    weight = weights[key] + by_seed
    biased = method == BUFFERED and run.part != ALIKE
    least = FLOORS.get(change, FLOORS[""]) if biased else floor
    least = least / 10 if method in REMEMBERING else least
    if run.part == STALE:
        least = stale[method, change]
    rounds = np.arange(1, ROUNDS + 1)
    gaps = np.maximum(8 * 0.3 ** np.arange(ROUNDS + 1.0), least)
    if run.part == STALE:
        gaps[1:] = least
    metrics = [json.dumps({"distance": (2 * gap * fast_gap()) ** 0.5}) for gap in gaps]
    evaluations = pd.DataFrame({"round": [0, *rounds], "metrics": metrics, "loss": gaps})
    if run.part in (PICTURES, LINKED):
        evaluations["accuracy"] = 1 - gaps / 8
    clients = pd.DataFrame({"client": ["f", "s"], "group": [FAST, SLOW]})
    twice = np.repeat(rounds, 2)
    folded = pd.DataFrame(
        {
            "round": twice,
            "call_round": twice,
            "client": ["f", "s"] * ROUNDS,
            "weight": [2 * (1 - weight), 2 * weight] * ROUNDS,
            "outcome": "folded",
        }
    )
    took = seconds[method] / (1.5 if change == AT_FINISH else 1)
    work = folded[["round", "client"]].assign(modelled_s=[took / 2, took] * ROUNDS)
    books = pd.DataFrame(
        {"round": rounds, "next_s": took * rounds, "normaliser": 2.0, "bytes_up": sent[method]}
    )
    wasted = 6 / 26 if method == OVER_SELECTED else 0.0
    tables: dict[str, Any] = {
        "evaluations": evaluations,
        "group_evaluations": _evaluations_of_groups(run, pull, slow),
        "clients": clients,
        "contributions": folded,
        "work": work,
        "rounds": books,
        "round_totals": books.assign(bytes_wasted=wasted * books["bytes_up"]),
        "scenario": {"clock": {"kind": "rounds"}},
    }
    return MadeResult(run, tables, ended=ended)


def _evaluations_of_groups(
    run: StudyRun, pull: float, slow: dict[str, float]
) -> pd.DataFrame | None:
    if run.part == LINKED:
        loss = slow[str(run.labels["method"])]
        return pd.DataFrame({"round": range(ROUNDS + 1), "group": SLOW, "loss": loss})
    return None if run.part in (ALIKE, PICTURES, STALE) else _group_losses(run, pull)


def _group_losses(run: StudyRun, pull: float) -> pd.DataFrame:
    """The losses of both groups at a model between their optima, from the devices' examples."""
    read = run.scenario
    task = task_of(read, population(read)).to_json()
    designs, optima = _designs(task, read.devices, read.seed)
    fast, slow = optima[:-SLOW_DEVICES].mean(axis=0), optima[-SLOW_DEVICES:].mean(axis=0)
    theta = fast + pull * (slow - fast)
    losses = [float(np.mean((x @ theta - y) ** 2) / 2) for x, y in designs]
    values = {FAST: np.mean(losses[:-SLOW_DEVICES]), SLOW: np.mean(losses[-SLOW_DEVICES:])}
    return pd.DataFrame(
        [{"round": round, "group": group, "loss": loss}
         for round in range(ROUNDS + 1) for group, loss in values.items()]
    )  # fmt: skip


@cache
def _designs(
    task: str, devices: int, seed: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    opened = open_task(task, devices, seed)
    assert isinstance(opened, OpenSynthetic)
    designs = [opened.design(device) for device in range(devices)]
    return designs, np.array([np.linalg.solve(x, y) for x, y in designs])


def judged(options: Options, **made: Any) -> dict[str, Claim]:
    results = Results([result_of(run, **made) for run in STUDY.runs(options)])
    return statements(STUDY.judge(results, options))


def failing(claims: dict[str, Claim]) -> list[str]:
    return [text for text, claim in claims.items() if not claim.holds]


def planned(part: str, method: str, change: str = "") -> StudyRun:
    return next(
        run
        for run in STUDY.runs(QUICK)
        if (run.part, run.labels["method"], run.labels.get("change", "")) == (part, method, change)
    )


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "minutes"), [(FULL, 50), (QUICK, 7)])
def test_every_run_has_a_title_of_its_own(options: Options, minutes: float) -> None:
    runs = STUDY.runs(options)
    assert len({run.title for run in runs}) == len(runs)
    assert sum(run.expected_s for run in runs) < 60 * minutes


def test_the_full_form_compares_all_methods() -> None:
    for part in (ALIKE, APART_PART):
        runs = [run for run in STUDY.runs(Options(seeds=1)) if run.part == part]
        methods = [run.labels["method"] for run in runs if "change" not in run.labels]
        assert methods == [*METHODS, *(REMEMBERING if part == APART_PART else ())]


def test_methods_of_a_seed_differ_in_the_server_alone() -> None:
    first, second = (
        scenario(7, method, 5, StalenessSetting()) for method in (SYNCHRONOUS, BUFFERED)
    )
    assert second.model_copy(update={"server": first.server}) == first


def test_a_slow_device_needs_ten_times_as_long_in_every_world() -> None:
    fast, slow = scenario(7, BUFFERED, 5, StalenessSetting()).groups
    assert fast.device.examples_per_s.median == 10 * slow.device.examples_per_s.median  # type: ignore[union-attr]
    fast, slow = scenario(7, BUFFERED, 5, StalenessSetting(world=LINKS)).groups
    assert fast.device == slow.device
    assert isinstance(slow.link.up, float)
    assert isinstance(slow.link.down, float)
    transfer_s = 8 * 32 / slow.link.up + 8 * 32 / slow.link.down
    assert transfer_s + 0.005 == pytest.approx(10 * 0.005, rel=0.25)


# --- what is measured ----------------------------------------------------------------------------


def test_the_pull_is_where_the_model_stands_between_the_optima() -> None:
    found = measures(result_of(planned(APART_PART, BUFFERED)))
    by_seed = (QUICK.seed - 103) / 1000
    assert found["pull"] == pytest.approx(0.07 + by_seed, abs=1e-5)
    assert found["weight"] == pytest.approx(0.07 + by_seed)
    # The excess of ½·5²·(1 − x)² over that at .2, up to the scatter of the devices.
    at = 1 - found["pull"]
    assert found["slow excess"] == pytest.approx(12.5 * (at**2 - 0.8**2), rel=0.15)


def test_a_synchronous_round_takes_as_long_as_its_slowest_update() -> None:
    course = course_of(result_of(planned(ALIKE, SYNCHRONOUS)))
    assert course.index.tolist() == [15.0 * round for round in range(ROUNDS + 1)]
    assert course.iloc[0] == pytest.approx(8)


def test_the_target_has_a_time_and_bytes() -> None:
    found = measures(result_of(planned(ALIKE, OVER_SELECTED)))
    # 8 · .3⁴ = .065 is the first gap below .1.
    assert (found["seconds to target"], found["bytes to target"]) == (20, 5200)
    assert found["wasted"] == pytest.approx(6 / 26)
    never = measures(result_of(planned(ALIKE, OVER_SELECTED), floor=0.2))
    assert np.isnan([never["seconds to target"], never["bytes to target"]]).all()


def test_a_model_without_the_slow_devices_has_the_gap_of_the_fast_ones() -> None:
    assert predicted_gap(0.0) == 1
    assert predicted_gap(SHARE) == 0
    assert fast_gap(5.0) == pytest.approx(0.5)


# --- what is claimed -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FULL, QUICK])
def test_runs_that_went_as_claimed_make_all_claims_hold(options: Options) -> None:
    assert failing(judged(options)) == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("pulls", "words"),
    [
        ({(OVER_SELECTED, ""): 0.06, (OPPORTUNISTIC, ""): 0.08}, "over-selection loses"),
        ({(OVER_SELECTED, ""): 0.045}, "over-selection has the larger bias"),
        ({(FEDASYNC, ""): 0.15}, "FedAsync"),
        ({(MIFA, ""): 0.15}, "opportunistic rounds with mifa"),
        ({(FEDVARP, ""): 0.15}, "opportunistic rounds with fedvarp"),
        ({(BUFFERED, "slowness 5"): 0.05}, "grows with the slowness"),
        ({(BUFFERED, "at once 40"): 0.08}, "number of devices that work at a time"),
        ({(BUFFERED, "exponent 1"): 0.05}, "grows with the exponent"),
        ({(OPPORTUNISTIC, LIMITED): 0.04}, "refuse updates"),
        ({(BUFFERED, LINKS): 0.15}, "If links make devices slow"),
        ({(BUFFERED, LIVES): 0.16}, "With batteries"),
    ],
)
def test_a_pull_of_another_size_breaks_the_claim_that_states_it(
    pulls: dict[tuple[str, str], float], words: str
) -> None:
    changed = {**PULLS, **pulls}
    broken = failing(judged(QUICK, pulls=changed, weights=changed))
    assert any(words in text for text in broken)
    assert len(broken) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pulls": {**PULLS, (BUFFERED, AT_FINISH): 0.068}}, "at every finish, has a bias"),
        ({"stale": {**STALE_GAPS, (BUFFERED, ""): 50.0}}, "staleness does harm"),
        ({"stale": {**STALE_GAPS, (BUFFERED, WEIGHED): 20.0}}, "at most a hundredth"),
        ({"stale": {**STALE_GAPS, (SYNCHRONOUS, ""): 1e-3}}, "less than a thousandth"),
        ({"slow": {SYNCHRONOUS: 0.5, BUFFERED: 0.4}}, "hold other digits"),
    ],
)
def test_other_numbers_in_the_parts_of_the_full_form_break_their_claims(
    changed: dict[str, Any], words: str
) -> None:
    (broken,) = failing(judged(FULL, **changed))
    assert words in broken


def test_long_local_training_takes_as_long_as_usual() -> None:
    usual, long = (scenario(7, BUFFERED, 5, setting) for setting in (StalenessSetting(), LONG))
    for one, other in zip(usual.groups, long.groups, strict=True):
        speeds = (group.device.examples_per_s.median for group in (other, one))  # type: ignore[union-attr]
        assert next(speeds) / next(speeds) == pytest.approx(50 / 5)


def test_opportunistic_rounds_without_bias_break_what_is_said_of_them() -> None:
    fair = {**PULLS, (OPPORTUNISTIC, ""): 0.15}
    broken = failing(judged(QUICK, pulls=fair, weights=fair))
    assert any("do not remove the bias" in text for text in broken)


def test_a_limit_that_does_not_follow_the_weights_breaks_a_claim() -> None:
    (broken,) = failing(judged(QUICK, weights={**PULLS, (BUFFERED, ""): 0.1}))
    assert broken.startswith("Counted weights give the limit")


@pytest.mark.parametrize(
    ("method", "seconds", "words"),
    [
        (SYNCHRONOUS, 8.0, "synchronous training needs more than twice the time"),
        (OPPORTUNISTIC, 6.0, "over-selection needs more time than opportunistic"),
        (BUFFERED, 4.0, "over-selection needs over 1.5 times"),
    ],
)
def test_times_of_another_size_break_claims(method: str, seconds: float, words: str) -> None:
    broken = failing(judged(QUICK, seconds={**SECONDS, method: seconds}))
    assert any(words in text for text in broken)


def test_bytes_of_another_size_break_claims() -> None:
    (broken,) = failing(judged(QUICK, sent={**BYTES, BUFFERED: 1100}))
    assert "not paid for in bytes" in broken
    (broken,) = failing(judged(QUICK, sent={**BYTES, OVER_SELECTED: 1100}))
    assert "over-selection sends over 1.15" in broken


def test_synchronous_training_that_stays_behind_breaks_claims() -> None:
    broken = failing(judged(QUICK, floor=0.09))
    assert any("synchronous training is ahead at the end" in text for text in broken)
    assert any("overtakes" in text for text in broken), "it never does with the distance 1"


def test_runs_that_failed_break_claims_and_no_judgement() -> None:
    runs = STUDY.runs(QUICK)
    nothing = Results([result_of(run, ended=False) for run in runs])
    claims = statements(STUDY.judge(nothing, QUICK))
    assert failing(claims) == list(claims)


def test_tables_and_figures_have_every_method_and_change() -> None:
    findings = STUDY.judge(Results([result_of(run) for run in STUDY.runs(FULL)]), FULL)
    table = findings.tables[0].frame
    assert set(table["method"]) == {*METHODS, *REMEMBERING}
    drawn = {figure.name: figure.draw().axes for figure in findings.figures}
    assert list(drawn) == ["courses", "pulls", "biases", "pictures"]
    names = [tick.get_text() for tick in drawn["biases"][0].get_xticklabels()]
    assert names == [*METHODS, *REMEMBERING]
    lines = [line.get_label() for line in drawn["courses"][0].lines]
    assert lines == list(METHODS)

"""Expectations, judged from run folders whose values a person can check."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.toml import parse_toml
from muster.emulator.expectations.facts import CARBON, ENERGY, FACTS, METRIC
from muster.emulator.expectations.language import Fact, read_condition
from muster.emulator.records.account import Account
from muster.emulator.records.fact_values import FactValues
from muster.emulator.records.fault_windows import (
    FaultOccurrence,
    FaultWindow,
    fault_occurrences,
    fault_windows,
)
from muster.emulator.records.judged_rounds import JudgedRounds
from muster.emulator.records.judging import Judgement, judge_run, judgement_text
from muster.emulator.records.summary import describe, failed_expectations, summarise
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

ACCURACIES = (0.5, 0.6, 0.7, 0.3, 0.4, 0.65, 0.71, 0.8)
"""After rounds 1 to 8. The fault `cut` is applied in round 4 and healed when round 6 opens."""


def fault(event: str, name: str, round: int, *targets: str) -> dict[str, Any]:
    more: dict[str, Any] = {"number": 1, "seen": "declined"}
    if event == "planned":
        more = {"do": "offline", "times": 1}
    return {"event": f"fault_{event}", "fault": name, "targets": targets, "round": round, **more}


def committed(round: int) -> dict[str, Any]:
    return {"event": "round_committed", "round": round}


def expecting(run: RunFolder, *tables: str) -> None:
    faults = '[[faults]]\nname = "cut"\n[[faults]]\nname = "dark"\n'
    expectations = "".join(f"[[expect]]\n{table}\n" for table in tables)
    run.scenario(f'name = "small"\n{faults}{expectations}')


def judged(run: RunFolder, *tables: str) -> list[Judgement]:
    expecting(run, *tables)
    with Account(run.commit()) as account:
        return judge_run(account)


def learn(run: RunFolder) -> None:
    run.clients("a", "b")
    run.evaluate(2.0, 0.1)
    for number, accuracy in enumerate(ACCURACIES, start=1):
        away = number in (4, 5)
        run.round({"a": "folded"} if away else {"a": "folded", "b": "folded"},
                  declined={"b": "offline"} if away else {})  # fmt: skip
        run.evaluate(1 - accuracy, accuracy)
    run.journal(
        fault("planned", "cut", 4, "b"),
        *map(committed, (1, 2, 3)),
        fault("applied", "cut", 4, "b"),
        fault("observed", "cut", 4, "b"),
        *map(committed, (4, 5)),
        fault("healed", "cut", 6, "b"),
        fault("verified", "cut", 6, "b"),
        *map(committed, (6, 7, 8)),
    )


@pytest.mark.parametrize(
    ("table", "holds", "round", "values", "judged_rounds", "failed"),
    [
        ('that = "accuracy >= 0.8"', True, 8, {"accuracy": 0.8}, 1, 0),
        ('that = "accuracy > 0.8"', False, 8, {"accuracy": 0.8}, 1, 1),
        ('that = "accuracy >= 0.3"\nalways = true', True, 4, {"accuracy": 0.3}, 8, 0),
        ('that = "accuracy > 0.45"\nalways = true', False, 4, {"accuracy": 0.3}, 8, 2),
        ('that = "participation == 0.5"\nduring = "cut"', True, 5, {"participation": 0.5}, 2, 0),
        ('that = "participation == 1"\nbefore = "cut"', True, 3, {"participation": 1.0}, 3, 0),
        ('that = "call_success == 0.5"\nduring = "cut"', True, 5, {"call_success": 0.5}, 2, 0),
        (
            'that = "accuracy >= before - 0.02"\nafter = "cut"',
            False, 6, {"accuracy": 0.65, "before(accuracy)": 0.7}, 3, 1,
        ),
        (
            'that = "accuracy >= before - 0.02"\nwithin = { rounds = 2 }',
            True, 7, {"accuracy": 0.71, "before(accuracy)": 0.7}, 2, 1,
        ),
        (
            'that = "accuracy >= before"\nwithin = { rounds = 1, fault = "cut" }',
            False, 6, {"accuracy": 0.65, "before(accuracy)": 0.7}, 1, 1,
        ),
        (
            'that = "accuracy < before / 2"\nwithin = { rounds = 2, after = "applied" }',
            True, 4, {"accuracy": 0.3, "before(accuracy)": 0.7}, 2, 1,
        ),
        (
            'that = "rounds_until(accuracy >= before) <= 2"\nafter = "cut"',
            True, 8, {"rounds_until(accuracy >= before)": 2.0}, 1, 0,
        ),
        (
            'that = "rounds_until(accuracy > 0.9) <= 2"\nalways = true',
            False, 8, {"rounds_until(accuracy > 0.9)": float("inf")}, 1, 1,
        ),
        ('that = "total(folded) == 14"\nalways = true', True, 8, {"total(folded)": 14.0}, 1, 0),
        ('that = "total(folded) == 2"\nduring = "cut"', True, 5, {"total(folded)": 2.0}, 1, 0),
        (
            'that = "mean(accuracy) > least(accuracy)"\nduring = "cut"',
            True, 5, {"mean(accuracy)": 0.35, "least(accuracy)": 0.3}, 1, 0,
        ),
        (
            'that = "most(loss) - least(loss) < 0.1 + 0.4"\nalways = true',
            False, 8, {"most(loss)": 0.7, "least(loss)": 0.2}, 1, 1,
        ),
    ],
)  # fmt: skip
def test_an_expectation_is_judged_in_its_rounds(
    run: RunFolder,
    table: str,
    holds: bool,
    round: int,
    values: dict[str, float],
    judged_rounds: int,
    failed: int,
) -> None:
    learn(run)
    [found] = judged(run, table)
    assert (found.holds, found.round) == (holds, round)
    assert found.values == pytest.approx(values)
    assert (found.judged, found.failed) == (judged_rounds, failed)


def test_an_expectation_without_rounds_to_judge_fails(run: RunFolder) -> None:
    learn(run)
    places = (
        'before = "other"',
        'during = "other"',
        'after = "other"',
        'within = { rounds = 3, fault = "other" }',
    )
    for found in judged(run, *(f'that = "loss < 9"\n{place}' for place in places)):
        assert not found.holds
        assert found.reason == "the fault 'other' was never applied"


def test_a_fault_that_is_never_healed_lasts_to_the_end(run: RunFolder) -> None:
    learn(run)
    run.journal(fault("applied", "dark", 7, "a"))
    during, after, within = judged(
        run,
        'that = "accuracy >= 0.71"\nduring = "dark"',
        'that = "accuracy >= 0.1"\nafter = "dark"',
        'that = "accuracy >= 0.1"\nwithin = { rounds = 3, fault = "dark" }',
    )
    assert (during.holds, during.judged) == (True, 2)
    stays = "the fault 'dark' lasted to the end of the run, so there is no round after it"
    assert (after.holds, after.reason) == (False, stays)
    assert (within.holds, within.reason) == (False, stays)


def test_every_window_of_a_fault_counts_with_its_own_before(run: RunFolder) -> None:
    learn(run)
    (run.path / "journal.jsonl").unlink()
    for number in range(1, 9):
        if number in (4, 7):
            run.journal(fault("applied", "cut", number, "b"))
        elif number in (6, 8):
            run.journal(fault("healed", "cut", number, "b"))
        run.journal(committed(number))
    once, after = judged(
        run,
        'that = "accuracy >= before"\nwithin = { rounds = 1 }',
        'that = "accuracy >= before"\nafter = "cut"',
    )
    # After the first window, round 6 has 0.65 and 0.7 before; after the second, 0.8 and 0.65.
    assert (once.holds, once.round) == (False, 6)
    assert (after.round, after.judged, after.failed) == (6, 2, 1)


def test_a_fault_by_hand_is_none_of_the_scenario(run: RunFolder) -> None:
    learn(run)
    run.journal(fault("applied", "crash-1", 7, "a"), fault("healed", "crash-1", 8, "a"))
    (once,) = judged(run, 'that = "accuracy < 0.7"\nwithin = { rounds = 1 }')
    assert (once.holds, once.round, once.judged) == (True, 6, 1)


def test_rounds_without_an_evaluation_are_not_judged(run: RunFolder) -> None:
    run.clients("a")
    run.evaluate(2.0, 0.1)
    run.round({"a": "folded"})
    run.round({"a": "folded"})
    run.evaluate(1.0, 0.5)
    run.round({"a": "late: deadline"})  # empty: the model and its accuracy stay
    run.journal(committed(1), fault("applied", "cut", 2, "a"), committed(2))
    run.journal(fault("healed", "cut", 3, "a"), committed(3))
    every, before, total = judged(
        run,
        'that = "accuracy == 0.5"\nalways = true',
        'that = "accuracy > before"\nduring = "cut"',
        'that = "total(empty) == 1"\nalways = true',
    )
    assert (every.holds, every.judged) == (True, 2)
    # Nothing was evaluated before the fault except the initial model, which is of no round.
    assert (before.holds, before.reason) == (False, "there was no round with these values")
    assert total.holds


def test_a_loss_that_is_not_a_number_fails_every_comparison(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.add("evaluations", version=1, round=1, loss=None, accuracy=None, metrics="{}", seconds=0.1,
            at=0.0)  # fmt: skip
    less, more, other = judged(run, 'that = "loss < 5"', 'that = "loss > 5"', 'that = "loss != 0"')
    assert not less.holds
    assert not more.holds
    assert not other.holds
    assert less.as_json()["values"] == {"loss": None}


def values(
    run: RunFolder, name: str, group: str | None = None, metric: str | None = None
) -> dict[int, float]:
    with Account(run.commit()) as account:
        return dict(FactValues(account).of(Fact(name, group, metric)))


def mixed(run: RunFolder) -> None:
    """Two groups: round 1 loses one of three updates, round 2 is empty, and an update of round 2
    counts in round 3 with staleness 1."""
    run.clients("a", "b", group="phones")
    run.clients("s", group="silos")
    run.clients("x", group="silos", enrolled=False)
    run.round({"a": "folded", "b": "late: deadline", "s": "folded"})
    run.round({"a": "refused: norm"}, declined={"s": "offline"}, aborted={"b": "drop_out"})
    run.round({"a": "folded", "b": "duplicate"}, sent={"a": {"staleness": 3}})
    run.add("answers", round=2, client="x", decision="accept", at=0.0)
    run.contribute("x", "folded", round=3, call_round=2, staleness=1)


@pytest.mark.parametrize(
    ("name", "group", "expected"),
    [
        ("folded", None, {1: 2, 2: 0, 3: 2}),
        ("folded", "phones", {1: 1, 2: 0, 3: 1}),
        ("called", None, {1: 3, 2: 3, 3: 2}),
        ("called", "silos", {1: 1, 2: 2, 3: 0}),
        ("accepted", None, {1: 3, 2: 2, 3: 2}),
        ("accepted", "phones", {1: 2, 2: 2, 3: 2}),
        ("participation", None, {1: 2 / 3, 2: 0, 3: 2 / 3}),
        ("participation", "phones", {1: 0.5, 2: 0, 3: 0.5}),
        ("call_success", "phones", {1: 0.5, 2: 0, 3: 0.5}),
        ("share", "silos", {1: 0.5, 3: 0.5}),
        ("lost", "phones", {1: 1, 2: 2, 3: 1}),
        ("lost", "silos", {1: 0, 2: 0, 3: 0}),
        ("late", None, {1: 1, 2: 0, 3: 0}),
        ("refused", None, {1: 0, 2: 1, 3: 0}),
        ("dropped", "phones", {1: 0, 2: 1, 3: 0}),
        ("duplicate", None, {1: 0, 2: 0, 3: 1}),
        ("counted_twice", None, {1: 0, 2: 0, 3: 0}),
        ("mean_staleness", None, {1: 1, 3: 2}),
        ("max_staleness", None, {1: 1, 3: 3}),
        ("bytes_up", None, {1: 3000, 2: 1000, 3: 2000}),
        ("bytes", None, {1: 6000, 2: 2000, 3: 4000}),
        ("empty", None, {1: 0, 2: 1, 3: 0}),
        ("seconds", None, {1: 2, 2: 2, 3: 2}),
    ],
)
def test_facts_are_those_of_the_ledger(
    run: RunFolder, name: str, group: str | None, expected: dict[int, float]
) -> None:
    mixed(run)
    assert values(run, name, group) == pytest.approx(expected)


def test_every_fact_has_values(run: RunFolder) -> None:
    mixed(run)
    run.evaluate(1.0, 0.5, f1=0.25)
    for name, kind in FACTS.items():
        if name in ENERGY or name == CARBON:
            continue  # only with [energy]: test_energy.py
        of = "silos" if kind.of_group == "always" else None
        assert values(run, name, of, "f1" if name == METRIC else None)


def test_metrics_of_the_task_are_facts(run: RunFolder) -> None:
    mixed(run)
    run.evaluate(1.0, 0.5, f1=0.25)
    run.add("group_evaluations", version=1, round=1, group="phones", examples=3, loss=1.0,
            accuracy=None, metrics='{"f1": 0.75}')  # fmt: skip
    assert set(values(run, "metric", metric="f1").values()) == {0.25}
    assert values(run, "metric", metric="auc") == {}
    assert values(run, "metric", "phones", "f1") == {1: 0.75, 2: 0.75}
    assert values(run, "metric", "silos", "f1") == {}


def test_an_update_that_is_folded_twice_is_found(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.ledger.execute("DROP INDEX counted_once")
    run.contribute("a", "folded")
    assert values(run, "counted_twice") == {1: 1}


def test_a_group_has_its_own_loss(run: RunFolder) -> None:
    run.clients("a", group="phones")
    run.round({"a": "folded"})
    run.evaluate(1.0, 0.5)
    run.measure({"phones": (10, 3.0, 0.25)}, {})
    assert values(run, "loss", "phones") == {1: 3.0}
    assert values(run, "accuracy", "phones") == {1: 0.25}


def occurrence(event: str, name: str, number: int, round: int | None) -> dict[str, Any]:
    return {"event": f"fault_{event}", "fault": name, "number": number, "targets": ["a"],
            "round": round}  # fmt: skip


def windows(events: list[dict[str, Any]]) -> list[FaultWindow]:
    return fault_windows(fault_occurrences(events))


def test_windows_follow_the_journal() -> None:
    events = [
        committed(1),
        fault("applied", "cut", 2, "a", "b"),
        committed(2),
        fault("healed", "cut", 3, "a"),
        committed(3),
        fault("healed", "cut", 4),
        fault("applied", "dip", 4, "a"),
        fault("healed", "dip", 4, "a"),
        committed(4),
        fault("applied", "cut", 5, "a"),
        {"event": "fault_applied"},
    ]
    assert windows(events) == [
        FaultWindow("cut", 2, 3),
        FaultWindow("dip", 4, 4),
        FaultWindow("cut", 5, None),
    ]


def test_a_window_ends_where_the_fault_was_healed_however_late_that_was_written() -> None:
    events = [fault("applied", "cut", 2, "a"), *map(committed, (2, 3, 4, 5))]
    events.append(fault("healed", "cut", 4, "a"))
    assert windows(events) == [FaultWindow("cut", 2, 3)]


def test_a_fault_that_ends_with_the_run_was_never_healed() -> None:
    ends = {**fault("healed", "cut", 2, "a"), "with_run": True}
    events = [fault("applied", "cut", 2, "a"), committed(2), ends]
    assert windows(events) == [FaultWindow("cut", 2, None)]
    # The same run, resumed: the fault does not act in round 3.
    assert fault_occurrences([*events, committed(3)]) == [FaultOccurrence("cut", 1, 2, 3)]


def test_occurrences_that_overlap_have_one_window() -> None:
    events = [
        committed(1),
        occurrence("applied", "churn", 1, 2),
        occurrence("applied", "churn", 2, 2),
        committed(2),
        occurrence("healed", "churn", 1, 3),
        committed(3),
        occurrence("healed", "churn", 2, None),
        committed(4),
        occurrence("applied", "churn", 3, None),
        committed(5),
        occurrence("healed", "churn", 3, 6),
    ]
    assert windows(events) == [FaultWindow("churn", 2, 3), FaultWindow("churn", 5, 5)]


def test_the_summary_and_the_terminal_have_every_expectation(run: RunFolder) -> None:
    learn(run)
    expecting(
        run,
        'that = "accuracy >= before - 0.02"\nafter = "cut"',
        'that = "total(lost) == 0"\nalways = true',
    )
    with Account(run.commit()) as account:
        summary = summarise(account, "completed")
    assert failed_expectations(summary) == 1
    assert json.loads(json.dumps(summary["expectations"][0])) == {
        "that": "accuracy >= before - 0.02",
        "where": "in every round after 'cut'",
        "holds": False,
        "round": 6,
        "values": {"accuracy": 0.65, "before(accuracy)": 0.7},
        "judged": 3,
        "failed": 1,
        "reason": "",
    }
    text = describe(summary, run.path)
    assert (
        "  FAILS  accuracy >= before - 0.02 in every round after 'cut': "
        "accuracy = 0.65, before(accuracy) = 0.7 in round 6 (fails in 1 of 3 rounds)"
    ) in text
    assert "  holds  total(lost) == 0 in every round: total(lost) = 0 in round 8" in text


def test_a_condition_that_never_held_says_so(run: RunFolder) -> None:
    learn(run)
    [found] = judged(run, 'that = "rounds_until(accuracy > 0.9) <= 2"\nalways = true')
    assert "rounds_until(accuracy > 0.9) = never" in judgement_text(found.as_json())


def test_a_run_without_expectations_has_none(run: RunFolder) -> None:
    learn(run)
    run.scenario('name = "small"\n')
    with Account(run.commit()) as account:
        summary = summarise(account)
    assert "expectations" not in summary
    assert failed_expectations(summary) == 0


def scenario(*expect: dict[str, Any], task: str = "digits", **server: Any) -> Scenario:
    values = {
        "name": "expecting",
        "task": {"name": task},
        "server": {"rounds": 3, **server},
        "groups": [{"name": "phones", "count": 4}],
        "expect": list(expect),
    }
    return validate(Scenario, values, "test")


def test_the_scenario_refuses_all_wrong_expectations_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        scenario(
            {"that": 'share("tablets") > 0', "always": True},
            {"that": "loss < before"},
            {"that": "loss < 1", "during": "cut"},
            {"that": "loss < 1", "always": True, "after": "cut"},
            {"that": "loss < 1", "within": {"rounds": 3}},
            {"that": "loss < 1", "within": {"rounds": 3, "fault": "cut"}},
            {"that": 'loss("phones") < 1'},
        )
    none = (
        "there is no fault 'cut', because the scenario has none; add [[faults]], or leave out the "
        "expectations about them: --set faults=[] needs --set expect=[]"
    )
    expected = (
        (0, 'that: share("tablets") names no group of the scenario; there are: phones'),
        (1, "that: `before` is the value before a fault, but the expectation names none"),
        (2, f"during: {none}"),
        (3, "after: expected one of always, before, during, after, within, found always and after"),
        (3, f"after: {none}"),
        (4, "within: the scenario has no faults; add [[faults]], or leave out the expectations"),
        (5, f"within.fault: {none}"),
        (6, 'that: loss("phones") is measured only with server.evaluate_groups = true'),
    )
    found = str(refusal.value).splitlines()[1:]
    for line, (number, mistake) in zip(found, expected, strict=True):
        assert line.startswith(f"  expect[{number}].{mistake}")


def test_what_comes_after_a_fault_that_stays_is_refused_before_the_start() -> None:
    def expecting_after(expect: dict[str, Any], **lasts: int) -> Scenario:
        fault = {"name": "cut", "do": "offline", "when": {"round": 2}, **lasts}
        values = {
            "name": "expecting",
            "task": {"name": "digits"},
            "server": {"rounds": 6},
            "groups": [{"name": "phones", "count": 4}],
            "faults": [fault, {**fault, "name": "other", "for_rounds": 1}],
            "expect": [{"that": "loss < 1", **expect}],
        }
        return validate(Scenario, values, "test")

    never = "the fault 'cut' is never healed, because it"
    for expect, mistake in (
        ({"after": "cut"}, f"after: {never} has neither for_rounds nor for_s; give it an end"),
        ({"within": {"rounds": 2, "fault": "cut"}}, f"within: {never} has neither"),
        ({"within": {"rounds": 2}}, "or name another fault in within.fault"),
    ):
        with pytest.raises(ConfigError) as refusal:
            expecting_after(expect)
        assert mistake in str(refusal.value)
    with pytest.raises(ConfigError, match="because it lasts up to round 6 and the run has 6"):
        expecting_after({"after": "cut"}, for_rounds=5)
    assert expecting_after({"after": "cut"}, for_rounds=4)
    assert expecting_after({"during": "cut"})
    assert expecting_after({"within": {"rounds": 2, "after": "applied"}})
    assert expecting_after({"within": {"rounds": 2, "fault": "other"}})


def test_what_comes_after_a_fault_that_a_person_may_heal_is_judged() -> None:
    values = {
        "name": "expecting",
        "clock": {"kind": "wall"},
        "task": {"name": "digits"},
        "server": {"rounds": 6, "deadline_s": 5},
        "groups": [{"name": "phones", "count": 4}],
        "faults": [{"name": "stopped", "do": "pause", "when": {"round": 2}}],
        "expect": [
            {"that": "loss < 1", "after": "stopped"},
            {"that": "loss < 1", "within": {"rounds": 2}},
        ],
    }
    assert validate(Scenario, values, "test").expect


def test_texts_that_are_no_conditions_are_refused_with_their_places() -> None:
    with pytest.raises(ConfigError) as refusal:
        scenario({"that": "accurcy > 1"}, {"that": "loss <"}, {"always": True})
    text = str(refusal.value)
    assert "expect[0].that: " in text
    assert "there is no fact accurcy" in text
    assert "expect[1].that: " in text
    assert "expect[2].that: required, but missing" in text


def test_accuracy_is_refused_if_the_task_has_none() -> None:
    with pytest.raises(ConfigError, match="the task measures no accuracy"):
        scenario({"that": "accuracy > 0.5"}, task="linear")


def test_a_resolved_scenario_keeps_its_expectations() -> None:
    given = {"that": 'loss("phones") < 1', "always": True}
    resolved = scenario(given, evaluate_groups=True).to_toml()
    [kept] = validate(Scenario, parse_toml(resolved, "test"), "test").expect
    assert (kept.that, kept.always) == (given["that"], True)


class CountingFacts(FactValues):
    """Facts of many rounds that count how often they are read."""

    def __init__(self, rounds: int) -> None:
        self.rounds = list(range(1, rounds + 1))
        self.reads = 0

    def of(self, fact: Fact) -> dict[int, float]:
        self.reads += 1
        return {}

    def newest(self, fact: Fact, round: int) -> float | None:
        self.reads += 1
        return 1.0


@pytest.mark.parametrize(
    "condition",
    ["mean(loss) > loss", "loss < before", "rounds_until(loss < before) < loss"],
)
def test_judging_reads_each_fact_a_few_times_per_round(condition: str) -> None:
    facts = CountingFacts(1_000)
    part = JudgedRounds(facts, facts.rounds, before=0)
    assert not list(part.verdicts(read_condition(condition)))
    # Once for the round itself and once for all rounds together, not once for each pair of rounds.
    assert facts.reads <= 3_000

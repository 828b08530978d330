"""Judges the expectations of a run when it has ended, from its folder alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster.emulator.expectations.language import ROUNDS_UNTIL
from muster.emulator.expectations.settings import Expectation
from muster.emulator.records.fact_values import FactValues
from muster.emulator.records.fault_windows import FaultWindow, fault_windows, occurrences_of
from muster.emulator.records.judged_rounds import JudgedRounds, RoundVerdict
from muster.emulator.records.parts import finite

if TYPE_CHECKING:
    from muster.emulator.records.account import Account


@dataclass(frozen=True)
class Judgement:
    """Whether an expectation holds, and the numbers.

    Attributes:
        that: the condition.
        where: the rounds in which it must hold, in words.
        round: the round that decides. It is the first one in which the condition fails; or, if the
            expectation holds, the one in which it does so most narrowly; or the first one in which
            it holds, if it needs to hold only once. None if there was no round to judge.
        values: the measured values in that round, by their text.
        judged: the number of rounds that were judged.
        failed: in how many of them the condition fails.
        reason: why it fails, if not because of the values.
    """

    that: str
    where: str
    holds: bool
    round: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    judged: int = 0
    failed: int = 0
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """The judgement as an entry of `expectations` in summary.json. A value that is not finite
        is null."""
        values = {name: finite(value) for name, value in self.values.items()}
        return {**vars(self), "values": values}


def judge_run(account: "Account") -> list[Judgement]:
    """Judge the expectations of the scenario in a run folder, in their order."""
    tables = account.scenario.get("expect", [])
    if not tables:
        return []
    faults = {fault["name"] for fault in account.scenario.get("faults", [])}
    windows = [each for each in fault_windows(occurrences_of(account)) if each.fault in faults]
    facts = FactValues(account)
    return [judge(Expectation.model_validate(table), facts, windows) for table in tables]


def judge(expectation: Expectation, facts: FactValues, windows: Sequence[FaultWindow]) -> Judgement:
    """Judge an expectation. It fails if the run has no round to judge: a test that has tested
    nothing does not pass.

    Args:
        windows: the windows of the scenario's faults, by their first rounds.
    """
    stated = expectation.that, expectation.where
    name = expectation.fault
    struck = [window for window in windows if name is None or window.fault == name]
    parts = _parts(expectation, facts, struck)
    if not parts:
        reason = f"the fault {name!r} was never applied" if name else "no fault was ever applied"
        return Judgement(*stated, holds=False, reason=reason)
    if expectation.after_healing and all(window.last is None for window in struck):
        which = f"the fault {name!r}" if name else "every fault"
        reason = f"{which} lasted to the end of the run, so there is no round after it"
        return Judgement(*stated, holds=False, reason=reason)
    verdicts = [list(part.verdicts(expectation.condition)) for part in parts]
    if expectation.within is not None:
        return _judge_once(stated, verdicts)
    return _judge_all(stated, [verdict for of_part in verdicts for verdict in of_part])


def _parts(
    expectation: Expectation, facts: FactValues, struck: Sequence[FaultWindow]
) -> list[JudgedRounds]:
    """The rounds in which the condition of an expectation must hold, for each window of its fault;
    empty if the fault was never applied.

    Args:
        struck: the windows of the fault.
    """
    newest = facts.rounds[-1] if facts.rounds else 0

    def part(first: int, last: int, before: int | None = None) -> JudgedRounds:
        return JudgedRounds(facts, facts.between(first, last), before)

    if expectation.fault is not None and not struck:
        return []
    if expectation.always:
        return [part(1, newest)]
    if (within := expectation.within) is not None:
        found = []
        for window in struck:
            first = window.first if within.after == "applied" else _after(window, newest)
            found.append(part(first, first + within.rounds - 1, window.first - 1))
        return found
    if expectation.during is not None:
        return [part(w.first, w.last or newest, w.first - 1) for w in struck]
    if expectation.after is not None:
        ends = [window.first - 1 for window in struck[1:]] + [newest]
        return [
            part(_after(window, newest), end, window.first - 1)
            for window, end in zip(struck, ends, strict=True)
        ]
    if expectation.before is not None:
        return [part(1, struck[0].first - 1)]
    return [part(newest, newest)]


def _after(window: FaultWindow, newest: int) -> int:
    """The first round after a window."""
    return newest + 1 if window.last is None else window.last + 1


def _judge_all(stated: tuple[str, str], verdicts: Sequence[RoundVerdict]) -> Judgement:
    """Judge a condition that must hold in all rounds."""
    if not verdicts:
        return Judgement(*stated, holds=False, reason="there was no round with these values")
    failed = [verdict for verdict in verdicts if not verdict.holds]
    # Of two rounds that are equally narrow, the later one.
    narrowest = min(reversed(verdicts), key=lambda verdict: verdict.margin)
    shown = failed[0] if failed else narrowest
    return Judgement(*stated, not failed, shown.round, shown.values, len(verdicts), len(failed))


def _judge_once(stated: tuple[str, str], of_windows: Sequence[Sequence[RoundVerdict]]) -> Judgement:
    """Judge a condition that must hold in one round after every window of its fault."""
    judged = sum(map(len, of_windows))
    failed = sum(not verdict.holds for verdicts in of_windows for verdict in verdicts)
    shown: RoundVerdict | None = None
    for verdicts in of_windows:
        if not verdicts:
            reason = "the run has no round after the fault with these values"
            return Judgement(*stated, holds=False, judged=judged, failed=failed, reason=reason)
        shown = next((verdict for verdict in verdicts if verdict.holds), None)
        if shown is None:
            near = min(verdicts, key=lambda verdict: verdict.margin)
            return Judgement(*stated, False, near.round, near.values, judged, failed)
    assert shown is not None
    return Judgement(*stated, True, shown.round, shown.values, judged, failed)


def judgement_text(judgement: Mapping[str, Any]) -> str:
    """A judgement from summary.json in a line: what was expected, what was measured, and in which
    round."""
    text = f"{judgement['that']} {judgement['where']}: {measured_text(judgement)}"
    if judgement["round"] is not None:
        text += f" in round {judgement['round']}"
    if not judgement["holds"] and judgement["judged"] > 1:
        text += f" (fails in {judgement['failed']} of {judgement['judged']} rounds)"
    return text


def measured_text(judgement: Mapping[str, Any]) -> str:
    """The measured values of a judgement from summary.json, or why there are none."""
    values = judgement["values"].items()
    found = ", ".join(f"{name} = {_number(name, value)}" for name, value in values)
    return str(judgement["reason"] or found or "no values")


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "never" if name.startswith(ROUNDS_UNTIL) else "not a number"
    return f"{value:.6g}"

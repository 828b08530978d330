"""The table `[[expect]]` of a scenario."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator

from muster.common.bounds import RoundCount
from muster.common.config import Section
from muster.emulator.expectations.facts import CARBON, ENERGY, EVALUATED
from muster.emulator.expectations.language import Before, Condition, facts_of, read_condition

FaultName = Annotated[str, Field(min_length=1, max_length=100)]


_WITHOUT_FAULTS = (
    "add [[faults]], or leave out the expectations about them: --set faults=[] needs --set "
    "expect=[]"
)


class KnownNames(NamedTuple):
    """The names that a condition may use, and what the run measures.

    Attributes:
        groups: the groups of the scenario.
        faults: the names of its faults.
        endless: why some of them are sure to last to the end of the run, by name.
        accuracy: whether the task has an accuracy.
        of_groups: whether the run evaluates the model for each group.
        energy, carbon: whether the scenario has `[energy]`, and an intensity in it.
    """

    groups: Collection[str]
    faults: Collection[str]
    endless: Mapping[str, str]
    accuracy: bool
    of_groups: bool
    energy: bool = False
    carbon: bool = False


class Within(Section):
    """The rounds in one of which a condition must hold."""

    rounds: RoundCount
    """How many rounds after the fault are judged."""

    after: Literal["healed", "applied"] = "healed"
    """Whether they follow the round in which the fault was healed, or begin with the round in which
    it was applied."""

    fault: FaultName | None = None
    """The name of the fault. Absent: every fault of the scenario, one after the other."""


class Expectation(Section):
    """A condition that must hold when the run has ended; otherwise `muster run` exits with status
    1. With none of the keys `always`, `before`, `during`, `after` and `within`, it must hold in the
    last round."""

    that: str
    """The condition, for example `accuracy >= before - 0.02`; docs/expectations.md has the
    language."""

    always: Literal[True] | None = None
    """The condition must hold in every round."""

    before: FaultName | None = None
    """The name of a fault: the condition must hold in every round before it."""

    during: FaultName | None = None
    """The name of a fault: the condition must hold in every round in which it is active."""

    after: FaultName | None = None
    """The name of a fault: the condition must hold in every round after it was healed."""

    within: Within | None = None
    """The condition must hold in one of the rounds after a fault."""

    @field_validator("that")
    @classmethod
    def _is_condition(cls, that: str) -> str:
        read_condition(that)
        return that

    @cached_property
    def condition(self) -> Condition:
        """The condition as a tree."""
        return read_condition(self.that)

    def mistakes(self, known: KnownNames) -> Iterator[str]:
        """Yield what does not fit to the rest of the scenario, each with the key that is wrong."""
        keys = "always", "before", "during", "after", "within"
        given = [key for key in keys if getattr(self, key) is not None]
        if len(given) > 1:
            yield f"{given[1]}: expected one of {', '.join(keys)}, found {' and '.join(given)}"
        yield from self._mistakes_of_faults(known)
        facts = list(facts_of(self.condition))
        names = {part.fact if isinstance(part, Before) else part for part in facts}
        for fact in sorted(names, key=str):
            if fact.group is not None and fact.group not in known.groups:
                there = ", ".join(known.groups)
                yield f"that: {fact} names no group of the scenario; there are: {there}"
            if fact.name == "accuracy" and not known.accuracy:
                yield "that: the task measures no accuracy; expected another fact, such as loss"
            elif fact.name in EVALUATED and fact.group is not None and not known.of_groups:
                whole = replace(fact, group=None)
                yield (
                    f"that: {fact} is measured only with server.evaluate_groups = true; set it, or "
                    f"write {whole} for the whole test set"
                )
            if fact.name in ENERGY and not known.energy:
                yield f"that: {fact} is computed only with the table [energy]; expected one"
            if fact.name == CARBON and not known.carbon:
                yield f"that: {fact} is computed only with energy.intensity; expected a file there"
        follows = {"before", "during", "after", "within"} & set(given)
        if any(isinstance(part, Before) for part in facts) and not follows - {"before"}:
            yield (
                "that: `before` is the value before a fault, but the expectation names none; "
                "expected during, after or within beside it"
            )

    def _mistakes_of_faults(self, known: KnownNames) -> Iterator[str]:
        for key in ("before", "during", "after"):
            if (name := getattr(self, key)) is not None:
                yield from (f"{key}: {mistake}" for mistake in _unknown(name, known))
        if self.after is not None and self.after in known.endless:
            yield f"after: {known.endless[self.after]}; give it an end, or write during"
        if (within := self.within) is None:
            return
        if within.fault is not None:
            yield from (f"within.fault: {mistake}" for mistake in _unknown(within.fault, known))
        elif not known.faults:
            yield f"within: the scenario has no faults; {_WITHOUT_FAULTS}"
        for name in known.endless if within.after == "healed" else ():
            if within.fault in (None, name):
                other = "" if within.fault else ", or name another fault in within.fault"
                yield f"within: {known.endless[name]}; give it an end{other}"

    @property
    def fault(self) -> str | None:
        """The fault that the expectation names; None if it names none, or every fault."""
        if self.within is not None:
            return self.within.fault
        return self.before or self.during or self.after

    @property
    def after_healing(self) -> bool:
        """Whether it is about the rounds after a fault was healed."""
        return self.after is not None or (self.within is not None and self.within.after == "healed")

    @property
    def where(self) -> str:
        """The rounds in which the condition must hold, in words."""
        if self.within is not None:
            fault = f"{self.within.fault!r} was" if self.within.fault else "every fault was"
            rounds = "round" if self.within.rounds == 1 else "rounds"
            return f"within {self.within.rounds} {rounds} after {fault} {self.within.after}"
        for key in ("before", "during", "after"):
            if (name := getattr(self, key)) is not None:
                return f"in every round {key} {name!r}"
        return "in every round" if self.always else "in the last round"


def _unknown(name: str, known: KnownNames) -> Iterator[str]:
    """Report the name of a fault that the scenario does not have."""
    if not known.faults:
        yield f"there is no fault {name!r}, because the scenario has none; {_WITHOUT_FAULTS}"
    elif name not in known.faults:
        yield f"there is no fault {name!r}; there are: {', '.join(known.faults)}"

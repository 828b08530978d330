"""The table `[[faults]]` of a scenario: what goes wrong, for whom, when and for how long."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from muster.common.bounds import DeviceCount, LongTime, NotNegative, RoundCount
from muster.common.config import Section
from muster.emulator.faults.registry import FAULTS, AnyFault

_COMMON = ("name", "target", "when", "for_rounds", "for_s")

EVENT = re.compile(r"[a-z]+(_[a-z]+)*")


class FaultTarget(Section):
    """The target of a fault. Keys combine: `count` of a `group`, for example. Without any key, all
    enrolled devices."""

    role: Literal["device", "server", "gateway"] = "device"
    """Whether the fault strikes devices, the server, or the gateways of groups."""

    group: str | None = None
    """Only devices of this group, or its gateway."""

    names: Annotated[list[str], Field(min_length=1)] | None = None
    """Only these devices."""

    count: DeviceCount | None = None
    """So many of them, drawn from the seed."""

    percent: Annotated[float, Field(gt=0, le=100)] | None = None
    """This share of them in percent, drawn from the seed; at least one device."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.count is not None and self.percent is not None:
            raise ValueError(
                f"count = {self.count} and percent = {self.percent:g} both say how many; expected "
                "one of them"
            )
        chosen: dict[str, object] = {
            "names": self.names,
            "count": self.count,
            "percent": self.percent,
        }
        if self.role == "server":
            chosen["group"] = self.group
        if self.role != "device" and (given := [key for key in chosen if chosen[key] is not None]):
            raise ValueError(f"{given[0]} chooses devices, but role is {self.role!r}")
        return self


class FaultTrigger(Section):
    """When a fault begins. Give `round`, `at_s`, both mean times, or `event`."""

    round: RoundCount | None = None
    """When this round opens. With `event`: only in this round."""

    every_rounds: RoundCount | None = None
    """Again after so many rounds, and so on."""

    at_s: NotNegative | None = None
    """After so many seconds of scenario time."""

    every_s: LongTime | None = None
    """Again after so many seconds of scenario time, and so on."""

    mean_up_s: LongTime | None = None
    """The fault comes and goes at random: mean seconds of scenario time without it."""

    mean_down_s: LongTime | None = None
    """Mean seconds of scenario time with it. Both times are exponential."""

    together: bool = False
    """With mean times: whether all targets fail at the same moments. Otherwise each target fails on
    its own."""

    event: Annotated[str, Field(max_length=100)] | None = None
    """At the first event of this name in the journal (`docs/results.md` lists them)."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        random = (self.mean_up_s, self.mean_down_s)
        if (random[0] is None) != (random[1] is None):
            raise ValueError("mean_up_s and mean_down_s belong together; found one of them")
        kinds = {
            "round": self.round is not None and self.event is None,
            "at_s": self.at_s is not None,
            "mean_up_s": random[0] is not None,
            "event": self.event is not None,
        }
        given = [kind for kind, there in kinds.items() if there]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"expected one of round, at_s, mean_up_s and event, found {found}")
        for period, needs in (("every_rounds", "round"), ("every_s", "at_s")):
            if getattr(self, period) is not None and given != [needs]:
                raise ValueError(f"{period} needs {needs}, which says when the fault begins first")
        if self.together and given != ["mean_up_s"]:
            raise ValueError("together needs mean_up_s and mean_down_s")
        if self.event is not None and not EVENT.fullmatch(self.event):
            raise ValueError(f"event: expected the name of an event, found {self.event!r}")
        return self


def _require_settings(kind: str, beside: Mapping[str, object]) -> None:
    """Refuse keys that a kind of fault does not have, and name those that it has.

    Raises:
        ValueError: there is such a key.
    """
    try:
        fields = FAULTS.find(kind).model_fields
    except ValueError:
        return  # the kind itself is refused
    settings = [name for name in fields if name != "kind"]
    if not (unknown := [key for key in beside if key not in settings]):
        return
    close = difflib.get_close_matches(unknown[0], [*settings, *_COMMON], n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    own = f"the settings of {kind} are: {', '.join(settings)}" if settings else f"{kind} has none"
    known = f"{own}; every fault may have {', '.join(_COMMON)}"
    raise ValueError(f"{unknown[0]}: unknown key{meant} {known}")


class ScheduledFault(Section):
    """A fault, with its target and its times. Its own settings stand beside these keys."""

    do: AnyFault
    """The kind of fault: one of the catalogue, or your own as `module:Class`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] | None = (
        None
    )
    """A name, by which results and expectations call the fault. Absent: its kind and a number, for
    example crash-1."""

    target: FaultTarget = FaultTarget()
    """Whom the fault strikes."""

    when: FaultTrigger
    """When it begins."""

    for_rounds: RoundCount | None = None
    """For how many rounds it lasts."""

    for_s: LongTime | None = None
    """For how many seconds it lasts. In lockstep these are wall seconds if the fault strikes
    programs or links; otherwise they are scenario time. Absent, like `for_rounds`: to the end of
    the run."""

    @model_validator(mode="before")
    @classmethod
    def _gather_settings(cls, values: object) -> object:
        """Move the fault's own settings from beside `do` into its table."""
        if not isinstance(values, Mapping) or not isinstance(values.get("do"), str):
            return values
        beside = {key: values[key] for key in values if key not in ("do", *_COMMON)}
        _require_settings(values["do"], beside)
        kept = {key: values[key] for key in values if key in _COMMON}
        return {**kept, "do": {"kind": values["do"], **beside}}

    @model_validator(mode="after")
    def _duration(self) -> Self:
        if self.for_rounds is not None and self.for_s is not None:
            raise ValueError(
                f"for_rounds = {self.for_rounds} and for_s = {self.for_s:g} both say how long the "
                "fault lasts; expected one of them"
            )
        lasting = self.for_rounds is not None or self.for_s is not None
        if self.when.mean_up_s is not None and lasting:
            raise ValueError("when.mean_down_s says how long the fault lasts; leave out for_*")
        if lasting and not self.do.lasts:
            raise ValueError(
                f"{self.do.kind} happens at one moment; leave out for_rounds and for_s"
            )
        periodic = self.when.every_rounds is not None or self.when.every_s is not None
        if periodic and self.do.lasts and not lasting:
            raise ValueError("a fault that comes again needs for_rounds or for_s")
        for period, length, unit in (
            (self.when.every_rounds, self.for_rounds, "rounds"),
            (self.when.every_s, self.for_s, "s"),
        ):
            if period is not None and length is not None and length >= period:
                raise ValueError(
                    f"for_{unit} = {length:g} is not shorter than when.every_{unit} = {period:g}, "
                    "so the fault would never end"
                )
        if self.target.role not in self.do.roles:
            able = " or ".join(sorted(self.do.roles))
            raise ValueError(
                f"target.role: {self.do.kind} strikes a {able}, found {self.target.role!r}"
            )
        return self


Faults = Annotated[
    list[ScheduledFault], Field(max_length=1_000), AfterValidator(lambda faults: named(faults))
]
"""The faults of a scenario, with a name each."""


def named(faults: Sequence[ScheduledFault], skips: bool = False) -> list[ScheduledFault]:
    """The faults with a name each: by default the kind and a number.

    Args:
        skips: whether a default name that is taken is left out, as by a fault that is injected by
            hand; otherwise it is refused.

    Raises:
        ValueError: two faults have the same name, also if one of them has none of its own.
    """
    taken = [fault.name for fault in faults if fault.name]
    if twice := sorted({name for name in taken if taken.count(name) > 1}):
        raise ValueError(f"two faults are called {twice[0]!r}; expected different names")
    found, number = [], dict[str, int]()
    for fault in faults:
        if not fault.name:
            kind = re.sub(r"[^A-Za-z0-9._-]+", "-", fault.do.kind).strip("-._") or "fault"
            number[kind] = number.get(kind, 0) + 1
            while skips and f"{kind}-{number[kind]}" in taken:
                number[kind] += 1
            name = f"{kind}-{number[kind]}"
            if name in taken:
                raise ValueError(
                    f"two faults are called {name!r}, because a fault without a name is called by "
                    f"its kind and a number; expected different names: give it one"
                )
            fault = fault.model_copy(update={"name": name})
        found.append(fault)
    return found

"""A plan: what it says of a scenario, its groups and their devices."""

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from muster.client.life.effort import Effort, effort_of
from muster.client.life.settings import PackMember
from muster.client.life.states import VERDICTS
from muster.client.training.settings import Training
from muster.common.body_sizes import body_sizes
from muster.common.exchange import Reason
from muster.common.files import write_atomic
from muster.common.masks import GroupMasks, Layout
from muster.common.seeds import FloatArray, IntArray
from muster.emulator.fleet.fault_timeline import FaultTimeline
from muster.emulator.fleet.masks import masks_of, members_of_sums
from muster.emulator.scenario.population import Resident, write_population
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group
from muster.server.rounds.selection import WeightedSelection
from muster.tasks.opening import is_own, opened


@dataclass(frozen=True, slots=True)
class Learning:
    """The facts of the task on which the device simulation depends.

    Attributes:
        examples: number of training examples of each device of the population.
        parameters: number of parameters of the model.
        masks: the masks of the groups whose devices train parts of the model, by name.
        left_out: number of users of the data that have no device.
        sums: the number of devices by group in each secure sum of a round with all devices, as far
            as it depends on masks.
    """

    examples: Sequence[int]
    parameters: int
    masks: Mapping[str, GroupMasks] = field(default_factory=dict)
    left_out: int = 0
    sums: Sequence[Mapping[str, int]] = ()

    @classmethod
    def of(cls, scenario: Scenario) -> Self:
        """Read the facts from the scenario's task, as far as the plan depends on them."""
        devices = [group.device for group in scenario.groups]
        sized = any(device.battery is not None for device in devices)
        sized = sized or any(group.gateway for group in scenario.groups)
        sized = sized or (scenario.server.secure is not None and scenario.conditions.masked)
        modelled = any(device.examples_per_s is not None for device in devices)
        weighted = isinstance(scenario.server.selection, WeightedSelection)
        own = scenario.task.tried or is_own(scenario.task)
        if not (sized or modelled or weighted or own):
            return cls([1] * scenario.devices, 0)
        task = opened(scenario.task, scenario.devices, scenario.seed)
        if not sized:
            return cls(task.examples, 0, left_out=task.left_out)
        from muster.tasks.parts import layout_of  # torch takes seconds

        learning = cls.with_layout(scenario, task.examples, layout_of(task.module()))
        return replace(learning, left_out=task.left_out)

    @classmethod
    def with_layout(cls, scenario: Scenario, examples: Sequence[int], layout: Layout) -> Self:
        """The facts of a task whose model is known.

        Raises:
            ConfigError: a group's mask does not fit the model, or secure sums.
        """
        masks = masks_of(scenario, layout)
        members = members_of_sums(scenario, masks) if masks else []
        sums = [Counter(member.group for member in of_sum) for of_sum in members]
        return cls(examples, layout.parameters, masks, sums=sums)

    def effort(self, scenario: Scenario, group: Group, members: Sequence[PackMember]) -> Effort:
        """The time and bytes of a round's work for some devices of a group."""
        held = [self.examples[member.index] for member in members]
        training = scenario.training.of(group.training)
        train_s = np.array([_train_s(training, *work) for work in zip(members, held, strict=True)])
        masks = self.masks.get(group.name)
        entries = self.parameters * scenario.server.aggregator.vectors()
        sizes = body_sizes(entries, group.link.compression, masks, scenario.sum_format(0))
        return effort_of(train_s, [member.line for member in members], *sizes)


@dataclass(frozen=True, slots=True)
class Counting:
    """What becomes of the updates of a group if they may count after the round of their call.
    Arrays by round, shape (rounds,).

    Attributes:
        folded: updates that count in the round.
        stale: those of them whose staleness is not 0.
        staleness: sum of the staleness of the updates that count.
        largest: their largest staleness; 0 if none counts.
        too_stale: updates of the round's calls that do not count because they would be older than
            `max_staleness`.
        open: number of assignments that are open when the run ends.
    """

    folded: IntArray
    stale: IntArray
    staleness: IntArray
    largest: IntArray
    too_stale: IntArray
    open: int


@dataclass(slots=True)
class GroupPlan:
    """The plan of a group over the rounds.

    Attributes:
        devices: number of devices of the group; `enrolled` of them may train.
        available, called, accepted, delivered: number of devices by round, shape (rounds,);
            delivered counts devices that accepted and did not give up.
        late: number of delivered updates whose modelled work lasts longer than the deadline, by
            the round of their call, shape (rounds,).
        reasons: number of calls without an update by round, shape (rounds,), by reason.
        charge: mean charge of the enrolled devices by round, shape (rounds,).
        clients: names of the enrolled devices.
        chance: mean true propensity of each enrolled device to take part when it is called, shape
            (enrolled,).
        fates: number of calls of each enrolled device by outcome, shape (enrolled, verdicts), in
            the order of VERDICTS.
        counting: what becomes of the updates if they may outlive their round; else None.
        joules: energy of the calls by round, shape (rounds,); None without `[energy]`.
    """

    name: str
    devices: int
    enrolled: int
    available: FloatArray
    called: FloatArray
    accepted: FloatArray
    delivered: FloatArray
    late: FloatArray
    charge: FloatArray
    reasons: dict[Reason, FloatArray]
    clients: list[str]
    chance: FloatArray
    fates: IntArray
    counting: Counting | None = None
    joules: FloatArray | None = None

    @property
    def in_time(self) -> FloatArray:
        """Devices by round whose update meets the deadline, shape (rounds,); if updates may
        outlive their round, the updates that count in it and are not stale."""
        if self.counting is None:
            return self.delivered - self.late
        return (self.counting.folded - self.counting.stale).astype(np.float64)

    def usual_reason(self, clients: Collection[str]) -> Reason | None:
        """The most frequent reason of these devices' calls without an update; None without any."""
        rows = [row for row, client in enumerate(self.clients) if client in clients]
        counts = self.fates[rows].sum(axis=0)
        counts[0] = 0
        return VERDICTS[int(counts.argmax())] if counts.any() else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a scenario.

    Attributes:
        exact: True if the clock is lockstep, so that a run does exactly what is planned; otherwise
            the plan assumes that rounds last their deadline.
        times_s: scenario seconds at which each round opens, shape (rounds,).
        versions: in the modes in which updates may outlive their round, the newest version after
            each round, shape (rounds,); else None.
        end_s: in these modes and on the clock `modelled`, scenario seconds at which the last round
            ends; else None.
        timeline: the faults of the scenario.
        undisturbed: the plan of the same scenario without faults, if any of them acts on the lives
            of devices.
        left_out: number of users of the data that have no device, as far as it is known.
        without_examples: number of devices that have no examples, and are not enrolled for that
            reason.
        sums: see `Learning`.
    """

    scenario: Scenario
    exact: bool
    residents: Sequence[Resident]
    times_s: FloatArray
    groups: Sequence[GroupPlan]
    versions: IntArray | None = None
    end_s: float | None = None
    timeline: FaultTimeline = field(default_factory=FaultTimeline)
    undisturbed: "Plan | None" = None
    without_examples: int = 0
    left_out: int = 0
    sums: Sequence[Mapping[str, int]] = ()

    @property
    def rounds(self) -> int:
        return len(self.times_s)

    def devices_of_sums(self) -> FloatArray:
        """The devices whose updates meet the deadline, by secure sum and round, shape (sums,
        rounds). Of a group that trains several parts, each part has the same share of these devices
        in every round."""
        whole = [{group.name: group.devices for group in self.groups}]
        return np.array(
            [
                sum(
                    group.in_time * (of_sum.get(group.name, 0) / group.devices)
                    for group in self.groups
                )
                for of_sum in self.sums or whole
            ]
        )

    def never(self, group: GroupPlan) -> list[str]:
        """Devices that can practically never take part: if they were called in every round, they
        would be expected to take part less than once."""
        expected = group.chance * self.rounds
        return [client for client, e in zip(group.clients, expected, strict=True) if e < 1]

    def participation(self) -> list[float | None]:
        """The true propensity of every device of the population to take part; None for devices
        that are not enrolled."""
        known = {
            client: float(chance)
            for group in self.groups
            for client, chance in zip(group.clients, group.chance, strict=True)
        }
        return [known.get(resident.client) for resident in self.residents]


def _train_s(training: Training, member: PackMember, held: int) -> float:
    if member.examples_per_s is None:
        return 0.0
    return training.of_device(member.client, held).examples_seen(held) / member.examples_per_s


_COLUMNS = ("round", "scenario_s", "group", "enrolled", "called", "available", "accepted",
            "delivered", "late", "battery")  # fmt: skip
_COUNTING = "version", "counted", "stale", "staleness", "largest_staleness", "too_stale"
"""Columns of plan.csv in the modes in which updates may outlive their round."""


def left_out_text(users: int, devices: int) -> str:
    """Say that users of the data have no device.

    Args:
        users: their number.
    """
    there = users + devices
    return (
        f"{users:,} of the {there:,} users of the data have no device, so their examples are left "
        f"out; take {there:,} devices for all of them"
    )


def write_plan(folder: Path, plan: Plan) -> None:
    """Write `plan.csv` and `population.csv`."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    energy = ["joules"] if any(group.joules is not None for group in plan.groups) else []
    rows.writerow([*_COLUMNS, *(_COUNTING if plan.versions is not None else ()), *energy])
    for place, time_s in enumerate(plan.times_s):
        for group in plan.groups:
            counts = (group.called, group.available, group.accepted, group.delivered, group.late)
            rows.writerow(
                [place + 1, f"{time_s:.12g}", group.name, group.enrolled]
                + [f"{values[place]:g}" for values in counts]
                + [f"{group.charge[place]:.6g}"]
                + _counted(plan, group, place)
                + ([] if group.joules is None else [f"{group.joules[place]:.9g}"])
            )
    write_atomic(folder / "plan.csv", text.getvalue().encode())
    write_population(folder / "population.csv", plan.residents, plan.participation())


def _counted(plan: Plan, group: GroupPlan, place: int) -> list[str]:
    """The cells of _COUNTING in a round."""
    counting = group.counting
    if counting is None or plan.versions is None:
        return []
    counts = plan.versions, counting.folded, counting.stale, counting.staleness, counting.largest
    return [str(int(values[place])) for values in (*counts, counting.too_stale)]

"""Searches for histories that violate an invariant, at random or exhaustively."""

import gc
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random

import torch

from muster.common.errors import ConfigError
from muster.server.rounds.modes import contract
from muster.simulation.faults import (
    HOLDING,
    Break,
    Fault,
    HistoryExtent,
    Kill,
    RogueKind,
    drawn,
)
from muster.simulation.fleet import scenario_named
from muster.simulation.history import RAN_DRY, History, HistoryOutcome
from muster.simulation.invariants import Undisturbed, broken_by, undisturbed_in
from muster.simulation.observed import seen_in
from muster.simulation.probes import reached
from muster.simulation.programs import Programs, programs_of
from muster.simulation.scratch import scratch_folder
from muster.wire import INLINE_BYTES

_MOST_BARREN = 1_000
"""The rounds without a version after which a server gives up: a tenth of the usual number, with
which a fleet that has run dry takes longer than hundreds of others."""

HISTORIES_OF_A_FLEET = 10
"""Seeds that follow each other and share a drawn fleet, whose undisturbed run is played once."""


@dataclass(frozen=True)
class HistoryPlan:
    """Everything that determines a history."""

    scenario: str
    seed: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Reference:
    """The undisturbed run of a scenario."""

    programs: Programs
    extent: HistoryExtent
    undisturbed: Undisturbed

    @property
    def clients(self) -> Mapping[str, Sequence[str]]:
        """The devices of each process."""
        packs = self.programs.packs
        return {pack.name: [device.client for device in pack.devices] for pack in packs}

    @property
    def revocable(self) -> Sequence[str]:
        """The processes that may be revoked: the others are enough for a version, if the run ends
        after a number of versions, and wait for no channel slot together with them."""
        server, mode = self.programs.server, self.programs.server.server.mode
        least = mode.completion(None, None).least if mode.counts_versions else 1
        if any(line.slots is not None for line in server.shared.values()):
            return ()
        all_of = sum(map(len, self.clients.values()))
        return [name for name, of in self.clients.items() if all_of - len(of) >= max(1, least)]

    @property
    def hostile(self) -> Sequence[RogueKind]:
        """The kinds of hostile devices that the fleet may have. Such a device is alone in its
        process, no other waits for it to want a channel slot, and the others are enough for a
        version, if the run ends after a number of versions. It may hold transfers open if models
        travel in chunks, and no link is so slow that the server has more patience than with a
        stall."""
        packs, server, mode = (
            self.programs.packs,
            self.programs.server,
            self.programs.server.server.mode,
        )
        alone = len(min(packs, key=lambda pack: pack.name).devices) == 1 < len(packs)
        others = sum(len(pack.devices) for pack in packs) - 1
        enough = not mode.counts_versions or mode.completion(None, None).least <= others
        slots = any(line.slots is not None for line in server.shared.values())
        if not alone or slots or not enough:
            return ()
        large = server.tensors.body_bytes > INLINE_BYTES
        return (*HOLDING, "forged") if large and not server.shared else ("forged",)


class Unsound(Exception):
    """The undisturbed run of a fleet violates something.

    Attributes:
        scenario: the name of the fleet.
    """

    def __init__(self, scenario: str, violation: str) -> None:
        super().__init__(f"without any fault: {violation}")
        self.scenario = scenario


class Simulator:
    """Plays histories in a folder of its own.

    Args:
        folder: where the histories' files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._references: dict[str, Reference] = {}
        torch.set_num_threads(1)
        _freeze()

    def reference(self, scenario: str) -> Reference:
        """The undisturbed run of a scenario, played on the first call.

        Raises:
            Unsound: it violates something.
            ConfigError: it has no end, because its rational devices leave.
        """
        if scenario not in self._references:
            programs = programs_of(scenario_named(scenario), self._folder / f"{scenario}-programs")
            with self._run_folder() as folder, _no_collection():
                history = History(programs, folder, 0)
                outcome = history.play()
                dry = outcome.status == RAN_DRY
                found = outcome.violations
                found = found if found or dry else list(broken_by(programs, folder, (), None))
                undisturbed = None if found or dry else undisturbed_in(folder)
            history.close()
            if dry:
                raise ConfigError(f"{scenario}: its devices leave, and no version is made")
            if found:
                raise Unsound(scenario, found[0])
            assert undisturbed is not None
            self._references[scenario] = Reference(programs, outcome.extent, undisturbed)
            _freeze()
        return self._references[scenario]

    def play(
        self, plan: HistoryPlan, traced: bool = False, moments: bool = False
    ) -> HistoryOutcome:
        """Play a history, check the invariants in the folder that it leaves, and note the probes
        that it has reached.

        Args:
            traced, moments: see `History`.
        """
        reference = self.reference(plan.scenario)
        reached()
        with self._run_folder() as folder, _no_collection():
            history = History(
                reference.programs, folder, plan.seed, plan.faults, traced, moments=moments
            )
            outcome = history.play()
            if not outcome.violations and outcome.status == "completed":
                found = broken_by(reference.programs, folder, plan.faults, reference.undisturbed)
                outcome.violations += found
                outcome.reached = reached() | seen_in(folder)
        history.close()
        return outcome

    @contextmanager
    def _run_folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def random_plan(self, seed: int) -> HistoryPlan:
        """The plan of the history with this seed."""
        random = Random(seed)
        fleet = f"fleet-{seed // HISTORIES_OF_A_FLEET}"
        reference = self.reference(fleet)
        hostile = reference.hostile if random.random() < 0.25 else ()
        rounds = reference.programs.scenario.server.rounds
        drawing = random, reference.extent, hostile, rounds
        more = reference.clients, reference.revocable
        return HistoryPlan(fleet, seed, tuple(drawn(*drawing, *more)))

    def every_plan(self, scenario: str, pairs: bool) -> Iterator[HistoryPlan]:
        """Yield every plan of a scenario in which one connection breaks, or one process dies; with
        `pairs`, also every plan with two of these faults. What the server has sent arrives after
        its death, or does not."""
        extent = self.reference(scenario).extent
        single: list[Fault] = [
            *(Break(frame, "before") for frame in range(extent.frames)),
            *(
                Kill(process, step)
                for process, steps in sorted(extent.processes.items())
                if process != "evaluation"
                for step in range(1, steps + 1)
            ),
            *(Kill("server", step, sent=True) for step in range(1, extent.processes["server"] + 1)),
        ]
        for fault in single:
            yield HistoryPlan(scenario, 0, (fault,))
        if pairs:
            for two in combinations(single, 2):
                yield HistoryPlan(scenario, 0, two)

    def with_one_more_kill(self, plan: HistoryPlan) -> tuple[HistoryOutcome, list[HistoryPlan]]:
        """The outcome of a plan, and every plan that has one more kill after its faults; kills that
        make no difference are left out."""
        outcome = self.play(plan, moments=True)
        return outcome, [replace(plan, faults=(*plan.faults, kill)) for kill in outcome.kills]

    def shortest(self, plan: HistoryPlan) -> HistoryPlan:
        """The plan without the faults that it does not need to violate an invariant."""
        faults: Sequence[Fault] = plan.faults
        shorter = True
        while shorter:
            shorter = False
            for place in range(len(faults)):
                fewer = (*faults[:place], *faults[place + 1 :])
                if self.play(HistoryPlan(plan.scenario, plan.seed, fewer)).violations:
                    faults, shorter = fewer, True
                    break
        return HistoryPlan(plan.scenario, plan.seed, tuple(faults))


@contextmanager
def simulator() -> Iterator[Simulator]:
    """A simulator with a temporary folder."""
    usual, contract.MOST_BARREN = contract.MOST_BARREN, _MOST_BARREN
    try:
        with scratch_folder() as folder:
            yield Simulator(folder)
    finally:
        contract.MOST_BARREN = usual


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: nothing in a history may depend on when it happens."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        gc.enable()


def _freeze() -> None:
    """Let the collector never scan again what is there now: modules, and programs of fleets."""
    gc.collect()
    gc.freeze()

"""The buffered mode: a version after every k updates, whichever devices they come from.

Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation (FedBuff), AISTATS 2022,
algorithm 1. With k = 1 it is asynchronous as in Xie, Koyejo, Gupta: Asynchronous Federated
Optimization (FedAsync), 2019.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from muster.common.bounds import DeviceCount
from muster.server.rounds.modes.carrying import Carrying
from muster.server.rounds.modes.contract import Completion, ModeConditions, RoundEnd
from muster.server.rounds.selection import Candidate, Draws, Selection
from muster.server.rounds.staleness import AnyStalenessWeight, Polynomial
from muster.server.rounds.steps import step_at

_MOST_BY_FINISH = 1_000


class Buffered(Carrying):
    """A new version after every `k` updates, whichever devices they come from. `server.rounds` and
    `evaluate_every` count versions."""

    counts_versions = True

    k: DeviceCount = 10
    """Number of updates that make a version; 1 is FedAsync."""

    concurrency: DeviceCount = 30
    """The most assignments that are open at a time."""

    calls_at: Literal["version", "finish"] = "version"
    """When devices are called in place of those that have finished: when a version has been made,
    or, as in FedBuff, whenever a device finishes. The latter makes a round of every update."""

    max_staleness: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """The largest staleness with which an update counts. An older one is recorded as late."""

    staleness_weight: AnyStalenessWeight = Polynomial(kind="polynomial")
    """The factor by which the weight of an update falls with its staleness. The default is that of
    FedBuff."""

    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        each = self.calls_at == "finish"
        return Completion(goal=self.k, deadline_s=deadline_s, least=self.k, each=each)

    def draws_devices(self) -> bool:
        return True

    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        if ended.finished_s:
            return max(ended.opened_s, *ended.finished_s)
        next_step_s = (step_at(ended.opened_s, round_s) + 1) * round_s
        if self.calls_at == "version":
            return ended.opened_s if ended.untried else next_step_s
        working = [finish_s for finish_s in ended.open_s if finish_s > ended.opened_s]
        if len(working) >= self.concurrency:
            return min(working)
        return ended.opened_s if ended.untried else min([next_step_s, *working])

    def wanted(
        self, candidates: Sequence[Candidate], open: int, selection: Selection, draws: Draws
    ) -> list[str]:
        free = min(self.concurrency - open, len(candidates))
        if free <= 0:
            return []
        chosen = draws().choice(len(candidates), free, replace=False)
        return [candidates[place].client for place in sorted(chosen)]

    def refusals(self, conditions: ModeConditions) -> Iterator[str]:
        devices = conditions.devices
        if self.k > self.concurrency:
            yield (
                f"k: {self.k} updates make a version, but at most {self.concurrency} assignments "
                f"are open; expected k of at most `concurrency`"
            )
        if self.k > devices:
            yield f"k: {self.k} updates, but only {devices} devices may take part"
        if self.calls_at == "finish" and self.k > _MOST_BY_FINISH:
            yield (
                f"k: {self.k} updates make a version, and with calls_at = 'finish' each is a round "
                f"of its own; expected k of at most {_MOST_BY_FINISH:,}, or calls_at = 'version'"
            )
        if conditions.minimum > self.k:
            yield (
                f"k: {self.k} updates make a version, but with server.minimum = "
                f"{conditions.minimum} a version needs more; expected a minimum of at most k"
            )
        yield from super().refusals(conditions)

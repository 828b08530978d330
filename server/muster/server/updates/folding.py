"""Folding: adds the accepted updates of a round to its exact sum, with their weights."""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from muster.common.errors import MusterError, RunFailed
from muster.common.exact_sum import RANGE, ExactSum, Term
from muster.common.exchange import Reason
from muster.server.aggregators import Aggregator, State
from muster.server.updates.privacy import clipped_weight
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates


def fault_of(weight: float, largest: float) -> tuple[Reason, str] | None:
    """Why an update would leave other updates less than half of the range of exact sums, or None.

    Args:
        largest: the largest absolute entry of the update.
    """
    if not math.isfinite(weight) or weight * largest < RANGE / 2:
        return None
    return Reason.NORM, (
        f"the largest entry of the update, {largest:.3g}, times its weight {weight:.3g} is "
        f"beyond {RANGE / 2:.3g}, half of what the exact sum of all updates can hold"
    )


class Folding:
    """The exact sum of the open round.

    Attributes:
        sum: Σ w·Δ so far.

    Args:
        rule: the aggregator.
        on_arrival: fold each update when it arrives. This is possible if it is known then that the
            update counts, and with which weight. Updates that arrived before their round opened are
            folded when it has closed.
        small: fold without the worker thread, because vectors are so small that handing them over
            costs more than folding.
        worker: the thread in which large vectors are folded, one at a time.
        keeps_bodies: keep the bodies of folded updates, because if too few updates have arrived
            when the round closes, they count in a later round instead.
        clip: the norm to which updates are clipped, instead of being weighed by the rule; None: the
            rule weighs them.
    """

    def __init__(
        self,
        parameters: int,
        rule: Aggregator,
        on_arrival: bool,
        small: bool,
        worker: ThreadPoolExecutor,
        keeps_bodies: bool,
        clip: float | None = None,
    ) -> None:
        self._clip = clip
        self.sum = ExactSum(parameters)
        self._rule, self._adds_up = rule, rule.adds_up()
        self._on_arrival = on_arrival
        self._small = small
        self._worker = worker
        self._keeps_bodies = keeps_bodies
        self._state: State = {}
        self.forget()

    def open(self, state: State) -> None:
        """Begin the sum of a round; `state` is the aggregator's."""
        self.sum.clear()
        self._state = state

    def forget(self) -> None:
        """Forget the updates of the round."""
        self._begun = set[str]()  # clients whose updates are folded, or soon will be
        self._folds: list[asyncio.Future[None]] = []
        self._unfolded: SimpleQueue[PendingUpdate] = SimpleQueue()

    def arrived(self, update: PendingUpdate) -> None:
        """Fold an accepted update now, if updates are folded on arrival."""
        if not self._on_arrival or update.held:
            return
        self._begun.add(update.update.key.client)
        if self._small:
            self._fold_now(update)
        else:
            self._unfolded.put(update)
            self._folds.append(self._fold_in_worker())

    def fault(self, update: PendingUpdate) -> tuple[Reason, str] | None:
        """Give an update its weight, if that is known on arrival. Return the reason for refusing it
        if it would leave other updates less than half of the range of exact sums, or None. Memories
        add up updates unweighted. If a rule knows its weights only at close, 1 stands for them, and
        the round judges again with its weights."""
        if not self._adds_up:
            return fault_of(1.0, update.body.largest) if self._rule.remembers() else None
        contribution = update.contribution
        if self._clip is not None:
            update.weight = clipped_weight(contribution, self._clip)
        elif self._rule.weights == "on-arrival":
            update.weight = self._rule.weight(contribution, self._state) * contribution.discount
        return fault_of(1.0 if update.weight is None else update.weight, update.body.largest)

    async def counted(self, updates: RoundUpdates) -> list[PendingUpdate]:
        """Wait until the updates that are folded on arrival are folded; return those that count.

        Raises:
            Diverged: the sum left its range.
            RunFailed: the aggregator gave an impossible weight.
        """
        if self._folds:
            await asyncio.gather(*self._folds)
        return [updates.accepted[client] for client in updates.round.counted()]

    async def fold(self, counted: Sequence[PendingUpdate], weights: Sequence[float]) -> None:
        """Fold the updates that count with their weights, unless they were folded on arrival or
        their processes hold them. If the rule does not add them up, they only get their weights.

        Raises:
            Diverged, RunFailed: see `counted`.
        """
        left = []
        for update, weight in zip(counted, weights, strict=True):
            if update.update.key.client not in self._begun:
                update.weight = weight
                left.append(update)
        if not self._adds_up:
            for update in left:
                self._require_possible(update)
            return
        folding = [update for update in left if not update.held]
        for update in folding:
            self._unfolded.put(update)
        if folding:
            await self._fold_in_worker()

    def _fold_now(self, update: PendingUpdate) -> None:
        """Fold without the worker thread; `counted` raises the error if there is one."""
        try:
            self._fold_together([update])
        except MusterError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            self._folds.append(failed)

    def _fold_in_worker(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._worker, self._fold_waiting)

    def _fold_waiting(self) -> None:
        """Fold all updates that wait. Folding them together costs less. The next call may then find
        none."""
        together = []
        while not self._unfolded.empty():
            together.append(self._unfolded.get_nowait())
        if together:
            self._fold_together(together)

    def _fold_together(self, together: Sequence[PendingUpdate]) -> None:
        terms = []
        for update in together:
            weight, body = self._require_possible(update), update.body
            terms.append(Term(body.read, weight, body.largest))
        self.sum.add_terms(terms)
        if self._keeps_bodies:
            return
        # At once, because all bodies of a cohort would need many times the model's memory.
        for update in together:
            update.body.close()

    def _require_possible(self, update: PendingUpdate) -> float:
        """Return the weight of an update.

        Raises:
            RunFailed: the aggregator gave an impossible one.
        """
        weight = update.weight
        if weight is None or not 0 <= weight < math.inf:
            raise RunFailed(
                f"the aggregator {self._rule.kind!r} gave {update.contribution.client} the weight "
                f"{weight}; expected a finite number >= 0"
            )
        return weight

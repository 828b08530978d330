"""The rows of the tables that the rounds of a run fill."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, NamedTuple

from muster.common.events import AppMeasured, RoundCommitted
from muster.common.exchange import Reason
from muster.common.facts import NO_FACTS, Facts
from muster.server.account.columns import LedgerTable, Stored

_TOLD = [field.name for field in fields(RoundCommitted) if field.name != "staleness"]
"""The columns of a round that its event in the journal has, too."""


class RoundRow(NamedTuple):
    """A row of `rounds`: a committed round.

    Attributes:
        round: number, from 1.
        base_version, version: version of the model before and after; the same when the round was
            empty.
        outcome: `aggregated`, or `empty`: there were fewer updates than `server.minimum`, or none
            to which the aggregator gives any weight; then no device counts as having taken part.
        called, accepted, folded: number of clients that were called; that accepted, also if they
            gave up later; whose updates became part of the model.
        normaliser: the divisor of the weighted sum.
        weight_sum, weight_max: exact sum and largest of the folded weights.
        effective_size: (Σw)² / Σw²: the number of equally weighted updates that this sample is
            worth.
        scenario_s: scenario seconds at which the round opened; on the wall and scaled clocks NULL
            before scenario time began.
        next_s: in lockstep, scenario seconds at which the next round opens; NULL on the wall and
            scaled clocks.
        loss, accuracy: of the version that the round made, once it is evaluated.
        bytes_up, bytes_down: bytes of the bodies of all updates received and all models sent since
            the round before was committed, including updates of earlier rounds that were still on
            their way.
        opened_at, closed_at: when the round began, and when the server had computed the next
            version, before the commit.
        seconds: wall seconds from `opened_at` to `closed_at`.
        epsilon: ε of differential privacy that was spent up to this round
            ([privacy.md](privacy.md)); NULL without `server.privacy`, or with noise 0.
        contributions: number of rows of `contributions` that were entered up to and with the commit
            of this round; rows are only added, so it is also the `rowid` of the newest one.
    """

    round: int
    base_version: int
    version: int
    outcome: str
    called: int
    accepted: int
    folded: int
    normaliser: float | None
    weight_sum: float | None
    weight_max: float | None
    effective_size: float | None
    scenario_s: float | None
    next_s: float | None
    loss: float | None
    accuracy: float | None
    bytes_up: int
    bytes_down: int
    opened_at: float
    closed_at: float
    seconds: float
    epsilon: float | None = None
    contributions: int | None = None

    def committed(self, staleness: Mapping[int, int]) -> RoundCommitted:
        """The event of the journal for this round.

        Args:
            staleness: the number of updates that count, by their staleness.
        """
        told = {str(versions): updates for versions, updates in sorted(staleness.items())}
        return RoundCommitted(**{name: getattr(self, name) for name in _TOLD}, staleness=told)


ROUNDS = LedgerTable("rounds", RoundRow, ["round"])


class AnswerRow(NamedTuple):
    """A row of `answers`: what a client said to a call.

    Attributes:
        round, client: the call that is answered; in lockstep a client that was called and never
            answered has no row.
        decision: `accept`; `decline`; `abort`: it accepted and then gave up; `absent` (wall and
            scaled clocks): it was not connected when the round opened, and was not called; `silent`
            (wall and scaled clocks): it was called but sent no answer.
        reason: why it declined or gave up ([protocol.md](protocol.md#reason) explains the reasons);
            otherwise NULL.
        state: JSON of the device's state at the decision: `battery` (share), `charging`, `idle`,
            `network` (`ethernet`, `wifi`, `cellular`), `unmetered`, `hour` (local, 0 to 24). NULL
            for a device whose state never changes (mains, never in use, by cable).
        x: JSON of the covariates X at the decision, by name; NULL if the scenario names none.
        x_age_s: age of `state` and `x` in scenario seconds. It is 0, except for absent and silent
            devices, and for a device whose update arrived and closed the round before its answer
            arrived: these have the last known values, from an answer or a heartbeat. NULL if
            neither is known.
        modelled_s: seconds that its work takes in the scenario's model of the device; for a device
            that gave up, of the part that it did. On the lockstep clock this decides which devices
            are late. Over a shared link it is a prediction until the work has ended. The measured
            time is `train_s` of its contribution.
        bytes_down: bytes of the model inside the message (or messages) that called the device; 0 if
            it fetches the model, or if the message went to its whole pack: then the bytes are in
            the row of the pack's first called device.
        at: when the answer came; for absent and silent devices, when the round closed.
        away_steps: in lockstep, for a device that declined because it is offline: for how many
            further steps of its life it said that it will be offline.
        entered: number of the round with whose commit the row was entered, if that is a later
            round; otherwise NULL. In the modes in which updates outlive their round, devices may
            answer late on the wall and scaled clocks.
    """

    round: int
    client: str
    decision: str
    reason: str | None
    state: str | None
    x: str | None
    x_age_s: float | None
    modelled_s: float | None
    bytes_down: Annotated[int, Stored(default=0)]
    at: float
    away_steps: int = 0
    entered: int | None = None


ANSWERS = LedgerTable(
    "answers",
    AnswerRow,
    ["round", "client"],
    index="CREATE INDEX entered_later ON answers (entered) WHERE entered IS NOT NULL;",
)


class ValuationRow(NamedTuple):
    """A row of `valuations`: what a model was worth to a rational device.

    Attributes:
        round, client: the call; the decision is in `answers`.
        received_accuracy: share of right predictions of the received model on the device's
            validation examples.
        own_accuracy: the same of the device's own model; NULL in its first round.
        gains: 1 if the received model is better for the device than its own (equation 1 with its
            margin and tolerance), whatever rule the device follows; NULL without a model of its
            own.
        forced: 1 if the device had to accept without a test: in its first round, and in the first
            `utility.forced_rounds` rounds of the run.
        received_loss, own_loss: losses of both models on the same examples; NULL if not finite, or
            without a model.
        fitted_utility: the utility at its weight in the received model, by the curve of the round
            before; `received_accuracy` is what it measured at that weight. NULL without a curve.
        r_squared: R² of the curve on a grid of `utility.dense_points` weights; NULL if it was not
            measured, or if the accuracy is the same at all of them.
        a, b, c, threshold: the utility −a·r² + b·r + c of its weight r, which it fitted after this
            round's training, and the utility γ below which it leaves; NULL unless the aggregator
            tells weights (`feduca`).
    """

    round: int
    client: str
    received_accuracy: float
    own_accuracy: float | None
    a: float | None
    b: float | None
    c: float | None
    threshold: float | None
    gains: bool | None
    forced: bool
    fitted_utility: float | None
    r_squared: float | None
    received_loss: float | None
    own_loss: float | None


VALUATIONS = LedgerTable("valuations", ValuationRow, ["round", "client"])


class ContributionRow(NamedTuple):
    """A row of `contributions`: an update that arrived, or one that a device gave up.

    Attributes:
        call_round, client, attempt: key of the update: the round in which the device was called for
            it; an attempt is one call, after a restart there is another.
        round: the round in which the update counted; if it did not count, that of its call.
        base_version, staleness: version it was trained from; number of versions committed between
            that one and the version to which the update was added.
        weight: the weight that the aggregator gave it, times the [staleness
            weight](modes.md#staleness) of the mode; NULL unless folded.
        examples: training examples behind it.
        mask_ratio: share of the model's coordinates that it trained.
        bytes_up: received bytes of the update's body, inside an answer or in all of its transfers:
            fewer than its length if its round closed before the rest came, none if it was judged
            before any was sent, more if a part was sent again.
        bytes_down: bytes of the model sent to the device for this update, inside the call or in
            transfers. Each byte is in one row only: it is 0 in a further update for the same call,
            and for devices of a pack whose model came with another device's call.
        bytes_saved: bytes that masks and compression saved, for an update that came whole: the size
            of the update as float32 minus the length of its body.
        train_s: wall seconds of training.
        transfer_s: wall seconds of fetching the model and sending the update; 0 if both travel
            inside other messages.
        loss: mean training loss over its local steps.
        outcome: `folded`; `late` (after the deadline or the goal); `dropped` (the server accepted
            it, but the round had its goal without it; or the device gave up, then with 0 examples
            and 0 bytes; or it is in no [partial](partial-sums.md) or
            [secure](secure-aggregation.md) sum that has come: `sum missing`); `refused` (broke a
            rule); `duplicate` (already received).
        reason: why it was not folded; if the device gave up, the device's reason.
        at: when the outcome was decided.
        steps: number of local steps behind the update.
        error: if the device gave up because its training failed, the kind of the error and its
            text, at most 500 characters.
        received_metrics: JSON of the task's other metrics that the device measured of the received
            model, with `received_loss`; NULL if there are none.
    """

    round: int
    client: str
    call_round: Annotated[int, Stored(older="round")]
    attempt: int
    base_version: int
    staleness: int
    weight: float | None
    examples: int
    mask_ratio: float
    bytes_up: int
    bytes_down: int
    bytes_saved: int
    train_s: float | None
    transfer_s: float | None
    loss: float | None
    outcome: str
    reason: str | None
    at: float
    steps: int = 0
    error: Annotated[str | None, Stored(since=14)] = None
    received_metrics: Annotated[str | None, Stored(since=16)] = None
    facts: Facts = NO_FACTS

    @property
    def training_failed(self) -> bool:
        """Whether there is no update, because training raised an error."""
        return self.reason == Reason.TRAINING_FAILED


CONTRIBUTIONS = LedgerTable(
    "contributions",
    ContributionRow,
    index="CREATE UNIQUE INDEX counted_once ON contributions (call_round, client) "
    "WHERE outcome = 'folded';",
)


class TransferRow(NamedTuple):
    """A row of `transfers`: a call in which a model or an update travelled in chunks.

    Attributes:
        round, client, attempt: the call, as in `contributions`.
        direction: `down`: the model; `up`: the update, or a partial sum.
        bytes: bytes of the body that travelled in this transfer; 0 for an update that waited for
            its turn until its round closed.
        began_at: when it was requested; for a model by the device's clock.
        wait_s: seconds from then to its first byte, in which it waited for a channel slot of its
            group, and for its turn at the server (`server.transfers` at once).
        seconds: seconds from its first byte to its last.
        rate_bps: the achieved rate, 8 × `bytes` / `seconds`; NULL if nothing travelled or it took
            no time.
        ending: `complete`; `cut off`: the round closed, or the run ended, before the rest had come;
            `broken`: the connection broke, or the server ended the transfer because a chunk broke a
            rule.
    """

    round: int
    client: str
    attempt: int
    direction: str
    bytes: int
    began_at: float
    wait_s: float
    seconds: float
    rate_bps: float | None
    ending: str


TRANSFERS = LedgerTable("transfers", TransferRow)


class EstimateRow(NamedTuple):
    """A row of `estimates`: what the weights of a round are based on.

    Attributes:
        round, name: the round, and the name of the estimate.
        value: JSON: a number, a word, or a table of these by name.
    """

    round: int
    name: str
    value: str

    def app_measured(self) -> AppMeasured:
        """The event of the journal for metrics of an app."""
        return AppMeasured(self.round, json.loads(self.value))


ESTIMATES = LedgerTable("estimates", EstimateRow, ["round", "name"])

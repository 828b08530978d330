"""The learning of one device: its examples, its memory and its training."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import nn

from muster.client.device.memory import BODY_BYTES, Memory, RoundRecord, State, StoredUpdate
from muster.client.device.rational import ModelJudge, ModelJudgement
from muster.client.device.session import Session
from muster.client.device.training_config import DownloadTimes, TrainingConfig
from muster.client.faults.scheduled import DeviceFault
from muster.client.faults.update_effects import ActingFaults, UpdateEffects
from muster.client.life.participation import UtilitySettings
from muster.client.life.settings import PackMember
from muster.client.life.states import Row
from muster.client.training import kept_state
from muster.client.training.control_variates import Control
from muster.client.training.hosted import train_hosted
from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.client.training.together import Ahead, Job
from muster.client.training.trainer import keeps_state, training_errors
from muster.common.body_sizes import BodySizes, body_sizes
from muster.common.clock import Clock
from muster.common.compression import Codec, compress
from muster.common.device_metrics import metrics_to_bytes
from muster.common.errors import reason_of
from muster.common.exchange import Body, Call, Update
from muster.common.full_disk import is_full
from muster.common.lines import LinkModel
from muster.common.masks import GroupMasks, Mask
from muster.common.secure.grid import SumFormat
from muster.common.seeds import stream
from muster.common.tensors import WIRE, Vector
from muster.tasks.hosted import HostedTask
from muster.tasks.opening import plain_numbers
from muster.tasks.parts import load_local, load_vector
from muster.tasks.task import Examples, OpenTask
from muster.wire.bodies import checksum, decode_vector

log = logging.getLogger(__name__)

_ROOM_S = 0.5
"""Seconds between two attempts to write to a disk that is full."""


class Learner:
    """The learning side of one device.

    Attributes:
        faulty: whether the scenario has faults of the device's updates.
        rational: whether the device asks if a model serves it.
        index: its place in the population.
        seed: the scenario's, from the device's own configuration.
        held: the number of examples on which it trains.

    Args:
        module: the pack's scratch module; its parameters on entry do not matter.
        folder: the device's own folder, `devices/<client>` of the run folder.
        alone: whether its process has no other device: then it keeps its examples, and on disk the
            bodies of its updates. (Those of many devices would keep the disk busy, and training
            again is as fast.)
        codec: compresses the device's updates.
        line: the model of the device's link.
        lockstep: whether a round waits for every device that it called.
        masks: the masks of the device's group; None: it trains the whole model.
        faults: the faults of its updates.
        utility: how the device decides whether a model serves it; None: it does not ask.
        step_s: scenario seconds of a step of its life.
        sums: how it sends its updates for secure sums; None: it sends them by themselves.
    """

    def __init__(
        self,
        config: PackMember,
        task: OpenTask,
        module: nn.Module,
        folder: Path,
        alone: bool,
        codec: Codec,
        line: LinkModel,
        lockstep: bool,
        clock: Clock,
        masks: GroupMasks | None = None,
        faults: Sequence[DeviceFault] = (),
        seed: int = 0,
        utility: UtilitySettings | None = None,
        step_s: float = 1.0,
        sums: SumFormat | None = None,
    ) -> None:
        self.client = config.client
        self.session = Session(config.client, lockstep)
        self.memory = Memory(folder, BODY_BYTES if alone else 0)
        self.held = task.examples[config.index]
        self._kept = None if task.takes_rows and not alone else task.client(config.index)
        self._hosted = task if isinstance(task, HostedTask) else None
        self._task = task
        self._module = module
        self._codec = codec
        self.index, self.seed = config.index, seed
        self._masks = masks
        self._sums = sums
        self._narrow = masks is not None and masks.narrow
        self._faults = UpdateEffects(faults, config.client, seed)
        self.faulty = bool(self._faults)
        self.line = line
        self._speed = config.examples_per_s
        self._step_s = step_s
        self._clock = clock
        self._own_work: _OwnWork | None = None
        self.rational = utility is not None
        self._judge: ModelJudge | None = None
        if utility is not None:
            validation = task.validation(config.index)
            self._judge = ModelJudge(utility, task, module, validation, config.client, seed)

    def train(
        self,
        call: Call,
        model: Body,
        work: TrainingConfig,
        before: State,
        life: Row,
        download: DownloadTimes,
        step: int = 0,
        slowdown: float = 1.0,
        judgement: ModelJudgement | None = None,
        ahead: Ahead | None = None,
    ) -> StoredUpdate:
        """Train from the base version's model, and remember the round with its update.

        Args:
            before: the state in which the device entered the round.
            life: the row of the device's simulated state after the work.
            download: how the model came.
            step: the step of the device's life at which it was called.
            slowdown: factor of the modelled seconds of training, from faults.
            judgement: the decision of a rational device, which accepts.
            ahead: its training, if it was done with that of other devices.

        Raises:
            TrainingError: training raised an error. Nothing is remembered.
        """
        began, mask, round = self._clock.monotonic(), self._mask(call.key.round), call.key.round
        received = self._received(model, mask, work.entries)
        if before.control or self.rational:  # most devices keep nothing of that kind
            before = self._settled(call, before)
        faults = self._acting(round, step) if self.faulty else None
        control = measured = None
        training = self._of(work).training
        if training.control_variates:
            received, of_server = np.split(received, 2)
            control = Control.of(of_server, before.control)
        own, trainer = before.own, training.trainer
        with training_errors(self.client):
            if training.evaluate_every:
                measured = self._measured(call, received, before, training)
            if self._hosted is not None:
                trained, own = train_hosted(
                    self._hosted,
                    received,
                    training,
                    seed=work.seed,
                    client=self.client,
                    index=self.index,
                    round=round,
                    kept=own,
                    instruction=call.instruction,
                )
            elif ahead is not None:
                trained = ahead.trained
            else:
                state = kept_state.from_bytes(own) if keeps_state(trainer) else None
                trained = train(
                    self._task,
                    self._module,
                    received,
                    self.examples(faults),
                    training,
                    seed=work.seed,
                    client=self.client,
                    round=round,
                    base_version=call.base_version,
                    mask=mask,
                    correction=None if control is None else control.correction(),
                    state=state,
                    local=before.local,
                )
                if trainer is not None and state is not None:
                    own = kept_state.to_bytes(state, trainer.kind)
        sent, kept = trained.delta, b""
        if control is not None:
            change = control.change(trained, training.learning_rate_at(round))
            sent, kept = np.concatenate([sent, change]), (control.own + change).tobytes()
        if judgement is not None and self._judge is not None:
            own = self._judge.conclude(call, judgement, received, trained.delta).to_bytes()
        compressed = (mask, before, work.seed, round)
        body, residual = self._compressed(sent, *compressed)
        if faults:
            # What the device keeps stays that of the honest update, so that it heals with the
            # fault.
            trained = faults.tamper(trained)
            sent = np.concatenate([trained.delta, sent[len(trained.delta) :]])
            body = faults.rewrite(self._compressed(sent, *compressed)[0])
        update = Update(
            key=call.key,
            examples=trained.examples,
            checksum=checksum(body),
            length=len(body),
            train_s=self._clock.monotonic() - began + (0.0 if ahead is None else ahead.seconds),
            fetch_s=download.seconds,
            loss=trained.loss,
            modelled_s=self.modelled_s(work, slowdown, step),
            fetch_wait_s=download.wait_s,
            fetched_at=download.at,
            steps=trained.train_steps,
            facts=trained.facts,
            report=trained.report,
        )
        if measured is not None:
            facts, metrics = measured
            report = trained.report or metrics_to_bytes(metrics)
            update = update._replace(facts=trained.facts._replace(**facts), report=report)
        after = State(before.trained + 1, residual, life, kept, own, trained.local)
        self._hold(RoundRecord(call.key.round, call.model_checksum, before, after, update, body))
        return StoredUpdate(update, body)

    def _measured(
        self, call: Call, received: Vector, before: State, training: Training
    ) -> tuple[dict[str, float | None], dict[str, float]] | None:
        """The facts of an evaluation of the received model with the device's own local entries, and
        the task's other metrics, on the examples that the device holds out or, if there are none,
        those on which it trains; None if its version is not due."""
        due = call.base_version % training.evaluate_every == 0
        if not due or not (own := self._task.validation(self.index) or self.examples()):
            return None
        load_vector(self._module, received.astype(np.float32))
        load_local(self._module, before.local)
        metrics = plain_numbers(self._task.metrics_on(self._module, own))
        facts = {
            "received_examples": len(own),
            "received_loss": metrics.pop("loss"),
            "received_accuracy": metrics.pop("accuracy", None),
        }
        return facts, metrics

    def job(self, call: Call, step: int) -> Job:
        """The training for a call, to be done with that of other devices.

        Args:
            step: the step of the device's life at which it was called.
        """
        local = self.memory.before(call.key.round).local
        return Job(self.client, self.examples(self._acting(call.key.round, step)), local)

    def judgement_of(self, call: Call) -> ModelJudgement | None:
        """The decision about a call that the device has remembered, with the update if it accepted;
        None if there is none, or if the device gave up before it had a model of its own."""
        for held in self.memory.records_of(call):
            judgement = ModelJudgement.from_bytes(held.after.own) if held.after.own else None
            if judgement is not None and (not judgement.accepts or self.memory.update_for(call)):
                return judgement
        return None

    def judge(
        self, call: Call, model: Body, work: TrainingConfig, before: State, metered: bool
    ) -> ModelJudgement:
        """Decide whether the received model serves a rational device, which then trains, with
        `train` or `train_own`.

        Args:
            before: the state in which the device entered the round.
            metered: whether the device's network costs money.
        """
        assert self._judge is not None
        before = self._settled(call, before)
        received = decode_vector(model, work.entries)
        transfers = sum(self.body_sizes(work)) if metered else 0
        return self._judge.decide(call, received, before.own, transfers)

    def train_own(
        self,
        call: Call,
        work: TrainingConfig,
        before: State,
        life: Row,
        judgement: ModelJudgement,
        step: int,
    ) -> None:
        """Train the own model of a rational device that declined, and remember the round.

        The arguments are those of `train`; `judgement` is the decision.
        """
        assert self._judge is not None
        before = self._settled(call, before)
        examples = self.examples(self._acting(call.key.round, step))
        with training_errors(self.client):
            trained = train(
                self._task,
                self._module,
                judgement.own,
                examples,
                self._of(work).training,
                seed=work.seed,
                client=self.client,
                round=call.key.round,
                base_version=call.base_version,
            )
        judgement = self._judge.conclude(call, judgement, judgement.own, trained.delta)
        after = before._replace(life=life, own=judgement.to_bytes())
        self._hold(RoundRecord(call.key.round, call.model_checksum, before, after))

    def _acting(self, round: int, step: int) -> ActingFaults | None:
        """The faults that act on the update for a call of this round, at this step; None without
        any."""
        return self._faults.at(round, step) if self.faulty else None

    def examples(self, faults: ActingFaults | None = None) -> Examples:
        """The examples on which the device trains, which faults may have poisoned."""
        held = self._task.client(self.index) if self._kept is None else self._kept
        return faults.poison(held, _outputs(self._module)) if faults else held

    def give_up(
        self, call: Call, before: State, life: Row, judgement: ModelJudgement | None = None
    ) -> None:
        """Remember a round whose work was lost. The device's simulated state has changed, and what
        a rational device thinks of the received model, but not its own model.

        Args:
            judgement: what a rational device has decided.
        """
        before = self._settled(call, before)
        after = before._replace(life=life)
        if judgement is not None and before.own:  # otherwise it has no model of its own yet
            after = after._replace(own=judgement.to_bytes())
        self._hold(RoundRecord(call.key.round, call.model_checksum, before, after))

    def _hold(self, record: RoundRecord) -> None:
        """Store a record, and wait if there is no room for it: what is not stored is not sent."""
        while True:
            try:
                return self.memory.hold(record)
            except OSError as error:
                if not is_full(error):
                    raise
                log.warning("%s; waiting for room", reason_of(error))
                self._clock.pause(_ROOM_S)

    def _settled(self, call: Call, before: State) -> State:
        """The state before a round, with what follows from the updates that counted: the control
        variate, and for a rational device what is in the model of it."""
        counted = self.memory.counted_for(call)
        told = self.rational and call.weight is not None
        if told and before.own and counted.own is not before.own:
            sent = ModelJudgement.from_bytes(counted.own).sent if counted.own else None
            before = before._replace(
                own=ModelJudgement.from_bytes(before.own).having(sent).to_bytes()
            )
        return before._replace(control=counted.control)

    def _received(self, model: Body, mask: Mask | None, entries: int) -> Vector:
        """The entries of a download; those that the device did not download are 0."""
        if mask is None or not self._narrow:
            return decode_vector(model, entries)
        zeros = np.zeros(entries, np.float32)
        return mask.expand(decode_vector(model, mask.size), into=zeros)

    def _mask(self, round: int) -> Mask | None:
        """The coordinates to train for a call of this round; None: all."""
        return None if self._masks is None else self._masks.of(self.client, self.index, round)

    def _compressed(
        self, delta: Vector, mask: Mask | None, before: State, seed: int, round: int
    ) -> tuple[Body, bytes]:
        """The compressed body of an update, and the residual that compression left out.

        The residual has the size of the model also with a mask, and changes only inside the mask.
        """
        residual = np.frombuffer(before.residual, np.float32) if before.residual else None
        draws = partial(stream, seed, "compression", self.client, round)
        if mask is None:
            body, left = compress(self._codec, delta, residual, draws)
        else:
            old = np.zeros_like(delta) if residual is None else residual
            body, part = compress(self._codec, mask.compact(delta), mask.compact(old), draws)
            left = None if part is None else mask.expand(part, into=old)
        return body, b"" if left is None else left.tobytes()

    def trained_entries(self, round: int, entries: int) -> int:
        """Length of the vector of an update for a call of this round.

        Args:
            entries: that of an update of the whole model.
        """
        mask = self._mask(round)
        return entries if mask is None else mask.size

    def download_bytes(self, call: Call, work: TrainingConfig) -> int:
        """Length in bytes of what the device downloads for a call."""
        mask = self._mask(call.key.round) if self._narrow else None
        return (work.entries if mask is None else mask.size) * WIRE.itemsize

    def body_sizes(self, work: TrainingConfig) -> BodySizes:
        """The sizes that the models of links and batteries use."""
        return body_sizes(work.entries, self._codec, self._masks, self._sums)

    def resent(self, call: Call, step: int) -> list[StoredUpdate]:
        """Updates that faults make the device send beside its update for a call, which it has
        stored: an older one, and copies."""
        faults = self._acting(call.key.round, step)
        if faults is None or (stored := self.memory.update_for(call)) is None:
            return []
        older = [
            held.stored
            for held in self.memory.held
            if held.round < call.key.round and held.stored is not None
        ]
        return [*(older[-1:] if faults.repeats_last else []), *[stored] * faults.copies]

    def damaged(self, call: Call, step: int, body: Body) -> list[Body]:
        """What faults let arrive in place of the body of its update before it arrives whole."""
        faults = self._acting(call.key.round, step)
        return [] if faults is None else faults.damage(body)

    def modelled_s(self, work: TrainingConfig, slowdown: float = 1.0, step: int = 0) -> float:
        """Modelled seconds of a round's work: training and transfers over the device's own link.

        Args:
            slowdown: factor of the training, from faults.
            step: the step of the device's life at which it was called.
        """
        own = self._of(work)
        train_s = own.train_s * slowdown
        if own.transfer_s is not None:
            return train_s + own.transfer_s
        at_s = step * self._step_s
        return train_s + self.line.transfer_s(*self.body_sizes(work), at_s, train_s)

    def train_s(self, work: TrainingConfig) -> float:
        """Modelled seconds of training in a round: examples seen divided by the device's speed."""
        return self._of(work).train_s

    def _of(self, work: TrainingConfig) -> "_OwnWork":
        """What follows for this device from the training that the server announced; computed once,
        and asked for several times in every round."""
        if (own := self._own_work) is None or own.announced is not work:
            training = work.training.of_device(self.client, self.held)
            seen = training.examples_seen(self.held)
            varies = self.line.varies
            own = self._own_work = _OwnWork(
                work,
                training,
                0.0 if self._speed is None else seen / self._speed,
                None if varies else self.line.transfer_s(*self.body_sizes(work)),
            )
        return own


class _OwnWork(NamedTuple):
    """The work of a round of one device.

    Attributes:
        training: the device's own.
        train_s: modelled seconds of training.
        transfer_s: modelled seconds of its transfers; None if they depend on when they begin.
    """

    announced: TrainingConfig
    training: Training
    train_s: float
    transfer_s: float | None


def _outputs(module: nn.Module) -> int:
    """Number of outputs of a model: of the biases of its last layer, or of its last parameters."""
    return int(list(module.parameters())[-1].shape[0])

"""A Flower app that was loaded and rehearsed: it trains and is evaluated."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn

from muster.common.bounds import INSTRUCTION_BYTES
from muster.common.errors import ConfigError
from muster.tasks.flower import records
from muster.tasks.flower.arrays import ArrayFormat
from muster.tasks.flower.hosting import ClientHost, Instruction, seed_generators
from muster.tasks.flower.messages import (
    EXAMPLES,
    metric_name,
    model_record,
    numbers_of,
    with_model,
    without_model,
)
from muster.tasks.flower.project import read_project
from muster.tasks.flower.rehearsal import rehearse
from muster.tasks.hosted import HostedUpdate
from muster.tasks.parts import vector_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from muster.common.tensors import Vector
    from muster.tasks.flower.settings import FlowerSettings

_LOSS = ("loss", "eval_loss")
_TRAINING_LOSS = ("train_loss", "train-loss", "loss")
_ACCURACY = ("accuracy", "eval_acc", "eval_accuracy")

_LENGTH = struct.Struct("<Q")


class LoadedApp:
    """An app on the nodes of a population. The arguments are those of `OpenFlower`.

    Attributes:
        modules: names of the modules that its first round imports.

    Raises:
        ConfigError: the app cannot be hosted.
    """

    def __init__(
        self, settings: FlowerSettings, population: int, seed: int, rehearsal_s: float
    ) -> None:
        project = read_project(settings.app, settings.run_config)
        self._settings, self._population, self._seed = settings, population, seed
        self._host = ClientHost(project, population)
        seen = rehearse(project, self._host, population, seed, self._format_of, rehearsal_s)
        self.modules = seen.modules
        self._train, index, reply = seen.train
        self._format = self._format_of(self._train)
        # What could be refused in a round is refused now.
        self._instruction_of_round(
            self._format.record(self._format.initial, self._format.local), round=1
        )
        self._update(index, reply, RecordDict())
        self._evaluate: Instruction | None = None
        if seen.evaluate is not None:
            self._evaluate, index, reply = seen.evaluate
            model_record(self._evaluate.content, "the first message of evaluation")
            self._means([(self._examples(self._evaluate, index, reply), numbers_of(reply))])

    def module(self) -> nn.Module:
        """Return the initial model."""
        return _Arrays(self._format.schema.unflatten(self._format.initial))

    def train(
        self,
        index: int,
        client: str,
        received: Vector,
        seed: int,
        round: int,
        kept: bytes,
        instruction: bytes,
    ) -> HostedUpdate:
        """See `HostedTask.train`."""
        state, local = _kept_from(kept) if kept else (RecordDict(), self._format.local)
        model = self._format.record(received, local)
        if instruction:
            told = Instruction.from_bytes(instruction)
            told = told._replace(content=self._configured(with_model(told.content, model)))
        else:
            told = self._instruction_of_round(model, round)
        seed_generators(seed, client, round)
        reply = self._host.call(told, index, state)
        update = self._update(index, reply, state)
        return replace(update, report=self._report(told, index, reply)) if instruction else update

    def count_examples(self) -> list[int]:
        """See `OpenFlower.count_examples`."""
        initial = self._format.initial
        return [
            self.train(index, str(index), initial, self._seed, 1, b"", b"").examples
            for index in range(self._population)
        ]

    def metrics(self, module: nn.Module) -> dict[str, float]:
        """See `HostedTask.metrics`."""
        if self._evaluate is None:
            return {"loss": math.nan}
        model = self._format.record(vector_of(module), self._format.local)
        parts, wanted = [], self._settings.evaluated_devices or self._population
        for index in range(min(self._population, wanted)):
            seed_generators(self._seed, "evaluation", index)
            instruction = self._evaluate._replace(content=with_model(self._evaluate.content, model))
            reply = self._host.call(instruction, index, RecordDict())
            parts.append((self._examples(instruction, index, reply), numbers_of(reply)))
        return self._means(parts)

    def _format_of(self, instruction: Instruction) -> ArrayFormat:
        name = model_record(instruction.content, "the first message of training")
        return ArrayFormat(instruction.content[name], self._settings.local_arrays)

    def _instruction_of_round(self, model: ArrayRecord, round: int) -> Instruction:
        """The message of training for a round: that of the first round, with this model, the number
        of the round, and `train_config`."""
        content = self._configured(with_model(self._train.content, model, round))
        group = str(round) if self._train.group else ""  # only legacy strategies set it
        return Instruction(self._train.message_type, group, content)

    def _configured(self, content: RecordDict) -> RecordDict:
        """Add `train_config` to the records of a message of training; return them."""
        configs = [record for record in content.values() if isinstance(record, ConfigRecord)]
        if self._settings.train_config:
            if len(configs) != 1:
                raise ConfigError(
                    f"task.train_config: expected one ConfigRecord in the app's training messages, "
                    f"found {len(configs)}; leave train_config out"
                )
            configs[0].update(self._settings.train_config)
        return content

    def _report(self, told: Instruction, index: int, reply: RecordDict) -> bytes:
        """What the strategy gets of a reply beside the arrays."""
        report = records.to_bytes(without_model(reply))
        if len(report) > INSTRUCTION_BYTES:
            raise self._host.failure(
                told.message_type,
                index,
                f"it reports {len(report):,} bytes beside the model, expected at most "
                f"{INSTRUCTION_BYTES:,}",
            )
        return report

    def _update(self, index: int, reply: RecordDict, state: RecordDict) -> HostedUpdate:
        """The update of a reply to a message of training.

        Args:
            state: that of the node's context after the call.
        """
        try:
            arrays = reply[model_record(reply, "the reply")]
            trained, local = self._format.vector(arrays), self._format.local_of(arrays)
        except ConfigError as error:
            raise self._host.failure(self._train.message_type, index, str(error)) from None
        examples, numbers = self._examples(self._train, index, reply), numbers_of(reply)
        if not 0 < examples <= self._settings.examples:
            raise self._host.failure(
                self._train.message_type,
                index,
                f"it reports num-examples = {examples}, expected at least 1 and at most "
                f"task.examples = {self._settings.examples}; set task.examples to the most that a "
                f"device has",
            )
        name = metric_name(numbers, None, _TRAINING_LOSS)
        loss = math.nan if name is None else float(numbers[name])
        return HostedUpdate(trained, examples, loss, _kept_bytes(state, local))

    def _examples(self, instruction: Instruction, index: int, reply: RecordDict) -> int:
        """The number of examples of a reply, which weighs it."""
        numbers = numbers_of(reply)
        name = metric_name(numbers, None, EXAMPLES)
        found = None if name is None else numbers[name]
        if found is None or not float(found).is_integer() or found < 0:
            raise self._host.failure(
                instruction.message_type,
                index,
                f"expected a MetricRecord with 'num-examples', a whole number, as the weight of "
                f"the reply; found {found}",
            )
        return int(found)

    def _means(self, parts: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
        """The metrics of an evaluation: means over the nodes, weighted by their examples."""
        parts = [(examples, numbers) for examples, numbers in parts if examples]
        total = sum(examples for examples, _ in parts)
        names = set.intersection(*(set(numbers) for _, numbers in parts)) if parts else set()
        means = {
            name: math.fsum(examples * numbers[name] for examples, numbers in parts) / total
            for name in sorted(names.difference(EXAMPLES))
        }
        loss = metric_name(means, self._settings.loss_metric, _LOSS)
        accuracy = metric_name(means, self._settings.accuracy_metric, _ACCURACY)
        found = {"loss": math.nan if loss is None else means.pop(loss)}
        if accuracy is not None:
            found["accuracy"] = means.pop(accuracy)
        return found | {name: value for name, value in means.items() if name not in found}


class _Arrays(nn.Module):
    """The arrays of an app's model as parameters. Only the app knows what to compute with them."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = list(tensors)
        self._values = nn.ParameterList(
            nn.Parameter(torch.from_numpy(array.copy())) for array in tensors.values()
        )

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        yield from zip(self._names, self._values, strict=True)


def _kept_bytes(state: RecordDict, local: ArrayRecord) -> bytes:
    """What a device keeps: the state of its context, and its local arrays."""
    first = records.to_bytes(state)
    return _LENGTH.pack(len(first)) + first + records.to_bytes(RecordDict({"local": local}))


def _kept_from(kept: bytes) -> tuple[RecordDict, ArrayRecord]:
    (length,) = _LENGTH.unpack_from(kept)
    start = _LENGTH.size + length
    local = records.from_bytes(kept[start:])["local"]
    assert isinstance(local, ArrayRecord)
    return records.from_bytes(kept[_LENGTH.size : start]), local

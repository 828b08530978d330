"""The open task of a Flower app."""

from __future__ import annotations

import importlib
import math
import struct
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import nn

from muster.common.errors import ConfigError
from muster.tasks.flower import records
from muster.tasks.flower.arrays import ArrayFormat
from muster.tasks.flower.hosting import ClientHost, Order, seed_generators
from muster.tasks.flower.project import read_project
from muster.tasks.flower.rehearsal import REHEARSAL_S, rehearse
from muster.tasks.hosted import HostedTask, HostedUpdate
from muster.tasks.models import initial_vector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from muster.common.tensors import Vector
    from muster.tasks.flower.settings import Flower

_EXAMPLES = ("num-examples", "num_examples")
_ROUND = ("server-round", "server_round")
"""Keys of the round in a `ConfigRecord`, of strategies and of legacy ones by custom."""

_LOSS = ("loss", "eval_loss")
_TRAINING_LOSS = ("train_loss", "train-loss", "loss")
_ACCURACY = ("accuracy", "eval_acc", "eval_accuracy")

_LENGTH = struct.Struct("<Q")


class OpenFlower(HostedTask):
    """The app of a scenario, on the nodes of its population.

    It is loaded and rehearsed when it is first used, so a process that only counts examples imports
    nothing of it.

    Args:
        rehearsal_s: wall seconds after which an app that shows no message is refused.
    """

    def __init__(
        self, settings: Flower, population: int, seed: int, rehearsal_s: float = REHEARSAL_S
    ) -> None:
        self.examples = [settings.examples] * population
        self._settings, self._population, self._seed = settings, population, seed
        self._rehearsal_s = rehearsal_s

    @cached_property
    def _app(self) -> _LoadedApp:
        return _LoadedApp(self._settings, self._population, self._seed, self._rehearsal_s)

    def warm(self) -> None:
        for name in self._app.modules:
            with suppress(Exception):  # some modules can only be imported by others
                importlib.import_module(name)

    def module(self) -> nn.Module:
        return _Arrays(self._app.format.schema.unflatten(self._app.format.initial))

    def train(
        self, index: int, client: str, received: Vector, seed: int, round: int, kept: bytes
    ) -> HostedUpdate:
        app = self._app
        state, local = _kept_from(kept) if kept else (RecordDict(), app.format.local)
        order = app.training(app.format.record(received, local), round)
        seed_generators(seed, client, round)
        return app.update(order.message_type, index, app.host.call(order, index, state), state)

    def metrics(self, module: nn.Module) -> dict[str, float]:
        app, settings = self._app, self._settings
        if app.evaluate is None:
            return {"loss": math.nan}
        model = app.format.record(initial_vector(module), app.format.local)
        parts = []
        for index in range(min(self._population, settings.evaluated_devices or self._population)):
            seed_generators(self._seed, "evaluation", index)
            order = app.evaluation(model)
            reply = app.host.call(order, index, RecordDict())
            parts.append((app.examples(order.message_type, index, reply), _numbers(reply)))
        total = sum(examples for examples, _ in parts)
        names = set.intersection(*(set(numbers) for _, numbers in parts)) - set(_EXAMPLES)
        means = {
            name: math.fsum(examples * numbers[name] for examples, numbers in parts) / total
            for name in sorted(names)
        }
        loss = _first(means, settings.loss_metric, _LOSS)
        accuracy = _first(means, settings.accuracy_metric, _ACCURACY)
        found = {"loss": math.nan if loss is None else means.pop(loss)}
        if accuracy is not None:
            found["accuracy"] = means.pop(accuracy)
        return found | means


class _LoadedApp:
    """An app that was loaded and rehearsed.

    Attributes:
        host: calls its `ClientApp`.
        format: the arrays of its model.
        evaluate: the first message of evaluation; None if the app evaluates on no node.
        modules: names of the modules that its first round imports.
    """

    def __init__(self, settings: Flower, population: int, seed: int, rehearsal_s: float) -> None:
        project = read_project(settings.app, settings.run_config)
        self._settings = settings
        self.host = ClientHost(project, population)
        seen = rehearse(project, self.host, population, seed, self._format_of, rehearsal_s)
        self._train, self.evaluate, self.modules = seen.train, seen.evaluate, seen.modules
        self.format = self._format_of(seen.train)
        self._arrays = _only_arrays(seen.train.content, "the first message of training")
        self.training(seen.train.content[self._arrays], round=1)
        self.update(seen.train.message_type, seen.index, seen.reply, RecordDict())

    def _format_of(self, order: Order) -> ArrayFormat:
        name = _only_arrays(order.content, "the first message of training")
        return ArrayFormat(order.content[name], self._settings.local_arrays)

    def training(self, model: ArrayRecord, round: int) -> Order:
        """Return the message of training for a round: that of the first round, with this model,
        the number of the round, and `train_config`."""
        content = _copied(self._train.content, self._arrays, model, round)
        configs = [record for record in content.values() if isinstance(record, ConfigRecord)]
        if self._settings.train_config:
            if len(configs) != 1:
                raise ConfigError(
                    f"task.train_config: expected one ConfigRecord in the app's training messages, "
                    f"found {len(configs)}; leave train_config out"
                )
            configs[0].update(self._settings.train_config)
        group = str(round) if self._train.group else ""  # only legacy strategies set it
        return Order(self._train.message_type, group, content)

    def evaluation(self, model: ArrayRecord) -> Order:
        """Return the message of evaluation for a model: that of the first round."""
        assert self.evaluate is not None
        content = self.evaluate.content
        name = _only_arrays(content, "the first message of evaluation")
        return self.evaluate._replace(content=_copied(content, name, model, None))

    def update(self, kind: str, index: int, reply: RecordDict, state: RecordDict) -> HostedUpdate:
        """Return the update of a reply to a message of training.

        Args:
            state: that of the node's context after the call.
        """
        try:
            arrays = reply[_only_arrays(reply, "the reply")]
            trained, local = self.format.vector(arrays), self.format.local_of(arrays)
        except ConfigError as error:
            raise self.host.failure(kind, index, str(error)) from None
        examples = self.examples(kind, index, reply)
        numbers = _numbers(reply)
        loss = _first(numbers, None, _TRAINING_LOSS)
        return HostedUpdate(
            trained,
            examples,
            math.nan if loss is None else float(numbers[loss]),
            _kept_bytes(state, local),
        )

    def examples(self, kind: str, index: int, reply: RecordDict) -> int:
        """Return the number of examples of a reply, which weighs it."""
        numbers = _numbers(reply)
        name = _first(numbers, None, _EXAMPLES)
        found = None if name is None else numbers[name]
        if found is None or found != int(found) or found < 1:
            raise self.host.failure(
                kind,
                index,
                f"expected a MetricRecord with 'num-examples', a whole number above 0, as the "
                f"weight of the reply; found {found}",
            )
        if kind.startswith("train") and found > self._settings.examples:
            raise self.host.failure(
                kind,
                index,
                f"it reports num-examples = {int(found)}, but task.examples = "
                f"{self._settings.examples}; set task.examples to the most that a device has",
            )
        return int(found)


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


def _only_arrays(content: RecordDict, what: str) -> str:
    """The name of the one record that has the model."""
    names: list[str] = [n for n, record in content.items() if isinstance(record, ArrayRecord)]
    if len(names) == 1:
        return names[0]
    raise ConfigError(
        f"task.app: expected one ArrayRecord in {what}, which is the model, found "
        f"{', '.join(names) or 'none'} among the records {', '.join(content) or 'none'}; an app "
        f"that sends other messages, for example of secure aggregation, cannot be hosted"
    )


def _copied(content: RecordDict, name: str, model: ArrayRecord, round: int | None) -> RecordDict:
    """A copy of a message's records with another model, and the number of another round."""
    copy = RecordDict()
    for key, record in content.items():
        if isinstance(record, ConfigRecord):
            values = dict(record)
            values |= {} if round is None else {k: round for k in _ROUND if k in values}
            copy[key] = ConfigRecord(values)
        else:
            copy[key] = model if key == name else MetricRecord(dict(record))
    return copy


def _numbers(content: RecordDict) -> dict[str, float]:
    """All numbers in the records of a reply that are not arrays. The first of a name counts."""
    found: dict[str, float] = {}
    for name, record in content.items():
        if isinstance(record, ArrayRecord) or name.endswith(".status"):
            continue
        for key, value in record.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(key, value)
    return found


def _first(numbers: Mapping[str, float], named: str | None, usual: Sequence[str]) -> str | None:
    """The name of a metric: the one that a scenario names, or the first that is usual."""
    if named is not None and named not in numbers:
        raise ConfigError(
            f"task: the app reports no metric {named!r}; there are: {', '.join(numbers) or 'none'}"
        )
    return named or next((name for name in usual if name in numbers), None)


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

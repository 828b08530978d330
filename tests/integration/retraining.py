"""Makes the models of a finished run again, from its scenario and its ledger alone: every update
that counted is trained again from its base version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from muster.client.training.local import train
from muster.common.masks import GroupMasks, Mask
from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.records.account import Account
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.parts import layout_of, vector_of


class Retrained(NamedTuple):
    """An update that was trained again.

    Attributes:
        row: its row in the ledger's contributions.
        base: the model from which it was trained.
        mask: the coordinates that were trained; None: all.
    """

    row: Any
    base: FloatArray
    delta: FloatArray
    mask: Mask | None


NextModel = Callable[[Any, FloatArray, list[Retrained]], FloatArray]
"""Takes a row of the ledger's rounds, the model before it, and the updates that count in it, and
returns the model after it."""


def last_model(folder: Path) -> FloatArray:
    """The model that a run has left, shape (parameters,)."""
    named = load_file(folder / "model.safetensors")
    return np.concatenate([tensor.ravel() for tensor in named.values()]).astype(np.float64)


def retrained_models(read: Scenario, folder: Path, next_model: NextModel) -> list[FloatArray]:
    """The versions of a run's model in their order, made again."""
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    module = opened.module()
    masks = {
        group.name: GroupMasks(group.mask, layout_of(module), group.device.capacity, read.seed)
        for group in read.groups
        if group.mask is not None
    }
    with Account(folder) as account:
        clients = account.clients.set_index("client")
        folded = account.contributions.query("outcome == 'folded'")
        rounds: list[Any] = list(account.rounds.query("outcome == 'aggregated'").itertuples())
    models = {0: vector_of(module).astype(np.float64)}

    def again(row: Any) -> Retrained:
        place, base = int(clients["position"][row.client]), models[row.base_version]
        of_group = masks.get(clients["group"][row.client])
        mask = None if of_group is None else of_group.of(row.client, place, row.call_round)
        received = base.astype(np.float32)
        if of_group is not None and of_group.narrow and mask is not None:
            received[~mask.whole()] = 0
        trained = train(
            opened,
            module,
            received,
            opened.client(place),
            read.training,
            seed=read.seed,
            client=row.client,
            round=row.call_round,
            base_version=row.base_version,
            mask=mask,
        )
        return Retrained(row, base, trained.delta.astype(np.float64), mask)

    for row in rounds:
        updates = [again(update) for update in folded[folded["round"] == row.round].itertuples()]
        models[row.version] = next_model(row, models[row.base_version], updates)
    return [models[version] for version in sorted(models)]

"""How long devices train: in the scenario's model of the devices, and on this machine.

An update's `train_s` in the ledger is the time that this machine needed. If a group of the scenario
has `device.examples_per_s`, what counts for deadlines, and for the waiting on the wall clock, is
the modelled time: the examples that a device sees in a round, divided by its speed.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pydantic import ValidationError

from muster.client.life.device_settings import DeviceSettings
from muster.client.training.settings import GroupTraining, Training
from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import speeds_of
from muster.emulator.records.account import Account

ON_THIS_MACHINE, MODELLED = "on this machine", "of the modelled devices"

_LENGTH = ("local_steps", "local_epochs", "batch_size", "by_device")
_SPEED = ("profile", "examples_per_s")


def modelled_training(account: Account) -> pd.Series:
    """The modelled seconds of a round's training by client, without clients of groups that model no
    speed. It is empty if no group models a speed."""
    seen = examples_seen(account)
    parts = []
    for group in account.scenario.get("groups", []) if len(seen) else []:
        clients = account.clients[account.clients["group"] == group.get("name")]
        speeds = _speeds(group, account.scenario.get("seed", 0), clients)
        if speeds is not None:
            parts.append(seen[clients["client"]] / speeds)
    return pd.concat(parts) if parts else pd.Series(dtype="float64")


def examples_seen(account: Account) -> pd.Series:
    """The examples that a client goes through in a round's training, by client. It is empty if the
    scenario's training cannot be read."""
    parts = []
    try:
        training = Training.model_validate(_only(account.scenario.get("training", {}), _LENGTH))
        for group in account.scenario.get("groups", []):
            clients = account.clients[account.clients["group"] == group.get("name")]
            differs = GroupTraining.model_validate(_only(group.get("training", {}), _LENGTH))
            given = training.of(differs)
            devices = zip(clients["client"], map(int, clients["examples"]), strict=True)
            seen = [given.of_device(*each).examples_seen(each[1]) for each in devices]
            parts.append(pd.Series(seen, index=clients["client"], dtype="float64"))
    except (ValidationError, ConfigError):
        return pd.Series(dtype="float64")
    return pd.concat(parts) if parts else pd.Series(dtype="float64")


def spent_training(account: Account) -> tuple[pd.Series, str]:
    """The seconds of training of every update, and whose seconds they are: `MODELLED` if the
    scenario models the speed of any device, otherwise `ON_THIS_MACHINE`."""
    sent = account.contributions
    trained = sent[sent["examples"] > 0]  # without updates that a device gave up
    modelled = modelled_training(account)
    if modelled.empty:
        return trained["train_s"].dropna(), ON_THIS_MACHINE
    return trained["client"].map(modelled).dropna(), MODELLED


def _speeds(group: Mapping[str, Any], seed: int, clients: pd.DataFrame) -> Any:
    """The speeds of clients of a group; None if it models none, or if they cannot be read."""
    try:
        device = DeviceSettings.model_validate(_only(group.get("device", {}), _SPEED))
        who = list(clients["client"]), list(clients["position"])
        return speeds_of(device, seed, *who) if len(clients) else None
    except ValueError:  # the file of the speeds was moved, or the table is not valid
        return None


def _only(table: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}

"""The loss and accuracy of a run's final model for its groups and devices."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from muster.emulator.records.account import Account

_SPREAD = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}


def parts_of(account: "Account") -> dict[str, Any]:
    """`groups` and `devices` of the newest evaluation, as far as they were measured."""
    groups, devices = _last(account.group_evaluations), last_devices(account)
    found: dict[str, Any] = {}
    if not groups.empty:
        found["groups"] = {row["group"]: _part(row) for row in groups.to_dict("records")}
    if not devices.empty:
        measure = measure_of(devices)
        found["devices"] = {"measured": len(devices), "of": measure, **_spread(devices[measure])}
        if metrics := _spreads(devices["metrics"]):
            found["devices"]["metrics"] = metrics
    return found


def _spreads(cells: "pd.Series[str]") -> dict[str, dict[str, float | None]]:
    """How the task's other metrics are spread over the devices that have them, by name."""
    values: dict[str, list[float]] = {}
    for cell in cells:
        for name, value in metrics_of(cell).items():
            values.setdefault(name, []).append(math.nan if value is None else value)
    return {name: _spread(values[name]) for name in sorted(values)}


def _spread(values: Iterable[float]) -> dict[str, float | None]:
    return {key: finite(value) for key, value in spread_of(values).items()}


def _part(row: Mapping[Any, Any]) -> dict[str, Any]:
    accuracy = {} if math.isnan(row["accuracy"]) else {"accuracy": row["accuracy"]}
    metrics = {name: finite(value) for name, value in metrics_of(row["metrics"]).items()}
    others = {"metrics": metrics} if metrics else {}
    return {"examples": row["examples"], "loss": finite(row["loss"]), **accuracy, **others}


def spread_of(values: Iterable[float]) -> dict[str, float]:
    """Minimum, quantiles and maximum; each is the value of a device, also if some are infinite.

    NaN counts as infinite.
    """
    ordered = sorted(math.inf if math.isnan(value) else value for value in values)
    places = {key: max(0, math.ceil(share * len(ordered)) - 1) for key, share in _SPREAD.items()}
    return {key: ordered[place] for key, place in places.items()}


def last_devices(account: "Account") -> "pd.DataFrame":
    """The rows of `device_evaluations` of the newest evaluation."""
    return _last(account.device_evaluations)


def _last(rows: "pd.DataFrame") -> "pd.DataFrame":
    last: pd.DataFrame = rows[rows["version"] == rows["version"].max()]
    return last


def measure_of(rows: "pd.DataFrame") -> str:
    """The measure for comparing groups or devices: accuracy if the task has it, else loss."""
    return "loss" if rows["accuracy"].isna().all() else "accuracy"


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which a diverged run measures and JSON does not have, by None."""
    return value if not isinstance(value, float) or math.isfinite(value) else None


def metrics_of(text: str) -> dict[str, Any]:
    """The task's other metrics, from a cell of a column `metrics`."""
    metrics = json.loads(text or "{}")
    return metrics if isinstance(metrics, dict) else {}

"""Shows a calibration: as text, as a picture of quantiles, and as values for programs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from muster.emulator.records.summary import clean, number_text, percent_text, seconds_text
from muster.emulator.records.tabular import aligned
from muster.laboratory.calibration.calibrating import (
    MOST_DISTANCE,
    MOST_ERROR,
    Agreement,
    Calibration,
)
from muster.laboratory.calibration.fitting import QUANTITIES

_WHAT = ("work of a device", "round")


def describe(found: Calibration) -> str:
    """Describe a calibration in lines: what was fitted, and how well it predicts."""
    return "\n".join(
        [
            f"Fitted to {found.fitted_rounds} rounds of {len(found.devices)} devices",
            *aligned([*_fitted(found)]),
            "",
            f"Predicted: {found.held_out['round'].nunique()} rounds that were held out",
            *aligned([*_errors(found)]),
            "",
            "Quantiles, observed and predicted",
            *aligned([*_quantiles(found)]),
            "",
            *(f"Note: {clean(note)}." for note in found.notes),
            _verdict(found),
        ]
    )


def _fitted(found: Calibration) -> Iterator[list[str]]:
    """A row for each group and quantity."""
    yield ["group", "", "median", "lowest", "highest", "sigma", "distance to log-normal"]
    for group, of_group in found.spreads.items():
        devices = found.devices[found.devices["group"] == group]
        for name, spread in of_group.items():
            column, size = QUANTITIES[name]
            values = devices[name] / size
            numbers = spread.median / size, values.min(), values.max(), spread.sigma
            doubt = ": use the table" if spread.doubtful else ""
            yield [
                clean(group),
                column,
                *map(number_text, numbers),
                f"{spread.distance:.2f}{doubt}",
            ]
    for group, sigma in found.paces.items():
        yield [clean(group), "speed of a device by round", "1", "", "", number_text(sigma), ""]


def _errors(found: Calibration) -> Iterator[list[str]]:
    yield ["", "number", "median error", "distance"]
    yield _error(_WHAT[0], found.work)
    for group in found.held_out["group"].unique():
        yield _error(f"  {clean(group)}", found.work_of(group))
    yield _error(_WHAT[1], found.rounds)
    if not np.isnan(found.server_s):
        yield ["  beyond the longest work", "", seconds_text(max(0.0, found.server_s)), ""]


def _error(what: str, agreement: Agreement) -> list[str]:
    numbers = f"{len(agreement.observed):,}", percent_text(agreement.error)
    return [what, *numbers, "–" if np.isnan(agreement.distance) else f"{agreement.distance:.2f}"]


def _quantiles(found: Calibration) -> Iterator[list[str]]:
    tables = [found.work.quantiles(), found.rounds.quantiles()]
    yield ["", *(each for what in _WHAT for each in (what, ""))]
    for share in tables[0].index:
        cells = [cell for table in tables for cell in table.loc[share]]
        yield [f"{100 * share:g} %", *("–" if np.isnan(c) else seconds_text(c) for c in cells)]


def _verdict(found: Calibration) -> str:
    if found.shortcomings:
        return f"The model does not describe these rounds: {'; '.join(found.shortcomings)}."
    distance = f", and a distance of at most {MOST_DISTANCE}"
    if not found.judges_distance:
        distance = "; the distance says little with so few devices"
    if found.rounds.observed.empty:
        distance += "; no whole round could be judged"
    return (
        f"The model describes these rounds: median errors of at most {100 * MOST_ERROR:.0f} %"
        f"{distance}."
    )


def draw(found: Calibration, path: Path) -> None:
    """Draw observed against predicted quantiles, of the work of devices and of rounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    for axes, what, agreement in zip(
        figure.subplots(1, 2), _WHAT, (found.work, found.rounds), strict=True
    ):
        observed = agreement.observed.sort_values().to_numpy()
        shares = (np.arange(len(observed)) + 0.5) / max(1, len(observed))
        predicted = np.quantile(agreement.drawn, shares) if len(observed) else observed
        axes.plot(predicted, observed, "o", markersize=3, color="#0072b2")
        if len(observed):
            ends = [min(observed.min(), predicted.min()), max(observed.max(), predicted.max())]
            axes.plot(ends, ends, color="#8a949c", linewidth=1)
        axes.set_title(
            f"{what}: error {percent_text(agreement.error)}, distance {agreement.distance:.2f}",
            fontsize=10,
        )
        axes.set_xlabel("predicted seconds")
        axes.set_ylabel("observed seconds")
    figure.savefig(path, dpi=150)


def numbers_of(found: Calibration) -> dict[str, Any]:
    """The result as values for programs; docs/commands.md explains every key."""
    return {
        "good": not found.shortcomings,
        "shortcomings": found.shortcomings,
        "fitted_rounds": found.fitted_rounds,
        "held_out_rounds": int(found.held_out["round"].nunique()),
        "server_s": found.server_s,
        "work": _numbers(found.work),
        "rounds": _numbers(found.rounds),
        "groups": [
            {
                "group": group,
                "quantity": name,
                "median": spread.median,
                "sigma": spread.sigma,
                "distance": spread.distance,
                "doubtful": spread.doubtful,
            }
            for group, of_group in found.spreads.items()
            for name, spread in of_group.items()
        ],
        "paces": dict(found.paces),
        "devices": found.devices.reset_index(names="device").to_dict("records"),
        "notes": [*found.notes],
    }


def _numbers(agreement: Agreement) -> dict[str, Any]:
    return {
        "number": len(agreement.observed),
        "median_error": agreement.error,
        "distance": agreement.distance,
        "quantiles": agreement.quantiles().reset_index(names="share").to_dict("records"),
    }

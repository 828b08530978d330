"""Shows a life record: its numbers as text, and a picture of devices by rounds."""

from collections import Counter
from pathlib import Path
from typing import Final

from muster.common.life_record import LifeRecord, LifeRow
from muster.emulator.records.summary import clean, percent_text, seconds_text
from muster.emulator.records.tabular import aligned

_FATES: Final = {
    "counted": "#0072b2",
    "late or refused": "#e69f00",
    "gave up": "#d55e00",
    "declined": "#b8c4cc",
    "silent": "#1f2933",
    "absent": "#e7ebee",
}
"""What can become of a device in a round in which it is recorded, with its colour."""

_NOT_RECORDED = "#ffffff"


def fate_of(row: LifeRow) -> str:
    """What became of a device in a round, one of the names in the picture."""
    if row.counted is not None:
        return "counted"
    if row.trained:
        return "late or refused"
    return {"abort": "gave up", "decline": "declined", "absent": "absent"}.get(row.answer, "silent")


def describe(record: LifeRecord) -> str:
    """Describe a record in lines."""
    header, fates = record.header, Counter(map(fate_of, record.rows))
    groups = Counter(device.group for device in header.devices)
    stale = [row.staleness or 0 for row in record.rows if row.counted is not None]
    last_s = header.rounds[-1].ended_s if header.rounds else 0.0
    rows = [
        ["source", clean(header.source)],
        ["clock", header.clock],
        ["devices", ", ".join(f"{count} {clean(name)}" for name, count in groups.items())],
        ["rounds", f"{len(header.rounds)} in {seconds_text(last_s)} of scenario time"],
        *([fate, f"{fates[fate]:,} of {len(record.rows):,}"] for fate in _FATES if fates[fate]),
    ]
    if any(stale):
        late = sum(map(bool, stale)) / len(stale)
        rows.append(["stale", f"{percent_text(late)} of those that counted, at most {max(stale)}"])
    return "\n".join(aligned(rows))


def draw(record: LifeRecord, path: Path) -> None:
    """Draw devices (from top to bottom) by rounds, coloured by what became of each."""
    import numpy as np
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    places = {device.client: place for place, device in enumerate(record.header.devices)}
    shape = len(places), max(1, len(record.header.rounds)), 3
    picture = np.full(shape, to_rgb(_NOT_RECORDED))
    for row in record.rows:
        picture[places[row.client], row.round - 1] = to_rgb(_FATES[fate_of(row)])
    figure = Figure(figsize=(9, min(9.0, 1.6 + 0.12 * shape[0])), layout="constrained")
    axes = figure.add_subplot()
    extent = (0.5, shape[1] + 0.5, shape[0] + 0.5, 0.5)
    axes.imshow(picture, aspect="auto", interpolation="nearest", extent=extent)
    axes.set_xlabel("round in which the device was called")
    axes.set_ylabel("device")
    there = {fate_of(row) for row in record.rows}
    keys = [Patch(color=colour, label=fate) for fate, colour in _FATES.items() if fate in there]
    figure.legend(handles=keys, loc="outside upper center", ncols=len(keys) or 1, frameon=False)
    figure.savefig(path, dpi=150)

"""Writes a verification as text."""

from collections.abc import Iterator, Sequence

from muster.emulator.verification.result import Quantity, Row, Verification, unit_of

_HEAD = ("group", "link", "quantity", "asked", "measured", "deviation", "tolerance", "", "note")
_TEXT = {0, 1, 2, 7, 8}
"""Columns of text, which are aligned to the left."""


def describe(found: Verification) -> str:
    """Describe a verification: a line for every measurement, and the verdict."""
    rows = [_HEAD, *map(_cells, found.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{found.scenario}: rates over {found.seconds:g} s each, TCP payload at the receiver"]
    lines += ["", *(_line(row, widths) for row in rows), "", *_verdict(found)]
    return "\n".join(lines)


def _verdict(found: Verification) -> Iterator[str]:
    judged = [row for row in found.rows if row.ok is not None]
    if found.ok:
        yield f"All of {len(judged)} are inside their tolerances."
    elif found.outside:
        yield f"{len(found.outside)} of {len(judged)} are outside their tolerances."
    if found.unjudged:
        yield (
            f"{len(found.unjudged)} of {len(judged)} could not be judged (?), because the machine "
            f"was too loaded: measure again when it has less to do, or fewer --devices."
        )
    if len(judged) < len(found.rows):
        yield "Rows without a verdict are for information: no limit was asked, or they are gRPC's."


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        f"{cell:<{width}}" if place in _TEXT else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return ("  " + "  ".join(padded)).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.group,
        row.link,
        row.quantity,
        amount_text(row.quantity, row.asked),
        amount_text(row.quantity, row.measured),
        _difference(row.quantity, row.deviation, "+"),
        "" if row.tolerance is None else "±" + _difference(row.quantity, row.tolerance, ""),
        "?" if row.loaded else {True: "ok", False: "NO", None: ""}[row.ok],
        row.note,
    )


def amount_text(quantity: Quantity, amount: float | None) -> str:
    """A rate, a time or an index with its unit; a dash for None."""
    if amount is None:
        return "–"
    match unit_of(quantity):
        case "s":
            return f"{1000 * amount:.{1 if amount >= 0.001 else 2}f} ms"
        case "bit/s":
            for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
                if amount >= factor:
                    return f"{amount / factor:.4g} {unit}"
            return f"{amount:.4g} bit/s"
        case _:
            return f"{amount:.3f}"


def _difference(quantity: Quantity, amount: float | None, sign: str) -> str:
    if amount is None:
        return ""
    match unit_of(quantity):
        case "s":
            return f"{1000 * amount:{sign}.1f} ms"
        case "bit/s":
            return f"{100 * amount:{sign}.1f} %"
        case _:
            return f"{amount:{sign}.3f}"

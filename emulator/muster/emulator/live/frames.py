"""The differences that a page gets, so that little travels however large the fleet is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from muster.emulator.live.fleet_state import FleetState
from muster.emulator.live.page_state import columns, line_of, sections
from muster.emulator.live.series import Cursor, Row

_SPARSE = 8
"""A column travels whole if more than one of this many characters has changed."""


@dataclass(frozen=True)
class Publication:
    """The state of a page at one moment. Nothing changes it, so that many threads may read it.

    Attributes:
        number: a later publication has a larger number.
        sections: JSON of every section by name.
        series: by name, the names of its values and its rows.
        lines: the newest lines of the journal with their numbers, in their order.
    """

    number: int
    sections: Mapping[str, bytes]
    columns: Mapping[str, str]
    series: Mapping[str, tuple[Cursor, Sequence[str], Sequence[Row]]]
    lines: Sequence[dict[str, Any]]


def publication(number: int, state: FleetState, run_state: str) -> Publication:
    """What is to be seen of a fleet now."""
    states = state.device_states()
    found = sections(state, states, run_state)
    series = {"rounds": state.rounds, "evaluations": state.evaluations}
    return Publication(
        number,
        {name: orjson.dumps(value) for name, value in found.items()},
        columns(state, states),
        {name: (each.cursor, each.fields, list(each.rows)) for name, each in series.items()},
        [line_of(*line) for line in state.lines_after(0)],
    )


@dataclass(eq=False)
class PageReader:
    """Knows what one page has, and makes the frames that bring it up to date."""

    _sections: Mapping[str, bytes] = field(default_factory=dict)
    _columns: Mapping[str, str] = field(default_factory=dict)
    _cursors: Mapping[str, Cursor] = field(default_factory=dict)
    _line: int = 0

    def frame(self, now: Publication) -> bytes | None:
        """What the page lacks, as a JSON object on one line; None if it lacks nothing.

        It has the changed `sections` by name; `columns` by name, each whole or as the changed
        places `at` with their characters `to`; `series` by name, each with the `fields` of a row,
        how many rows the page `keeps`, and the `rows` that follow; and the new `lines` of the
        journal.
        """
        frame: dict[str, Any] = {}
        if changed := {n: v for n, v in now.sections.items() if self._sections.get(n) != v}:
            frame["sections"] = {name: orjson.Fragment(value) for name, value in changed.items()}
        if moved := {n: v for n, v in now.columns.items() if self._columns.get(n) != v}:
            frame["columns"] = {
                name: difference(self._columns.get(name, ""), value)
                for name, value in moved.items()
            }
        series = {}
        for name, (cursor, fields, rows) in now.series.items():
            has = self._cursors.get(name, Cursor())
            keeps = has.rows if has.thinned == cursor.thinned else 0
            if has != cursor:
                new = [tuple(row) for row in rows[keeps:]]
                series[name] = {"fields": fields, "keeps": keeps, "rows": new}
        if series:
            frame["series"] = series
        if lines := [line for line in now.lines if line["number"] > self._line]:
            frame["lines"] = lines
            self._line = lines[-1]["number"]
        self._sections, self._columns = now.sections, now.columns
        self._cursors = {name: cursor for name, (cursor, _, _) in now.series.items()}
        return orjson.dumps(frame) if frame else None


def difference(old: str, new: str) -> str | dict[str, Any]:
    """`new` itself, or the places at which it differs from `old` if they are few."""
    if len(old) != len(new):
        return new
    at = [place for place, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if len(at) * _SPARSE > len(new):
        return new
    return {"at": at, "to": "".join(new[place] for place in at)}

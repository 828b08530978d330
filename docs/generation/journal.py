"""The events of the journal."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import muster.common.fault_events  # noqa: F401 (its classes are events)
from generation.attributes import explained, parts
from generation.markdown import table
from muster.common.events import event_kinds


def events() -> list[str]:
    """A row for each event: when it is written, and its fields."""
    rows = []
    for event in event_kinds():
        when, _ = parts(event)
        rows.append((f"`{event.name}`", when, "<br>".join(_fields(event))))
    return table(("event", "when it is written", "fields"), rows)


def _fields(event: Any) -> Iterator[str]:
    """The fields in order; fields that share a meaning stand together before it. Base classes may
    explain some."""
    meanings = explained(event)
    together = {name: names for names in meanings for name in names}
    for names in dict.fromkeys(together.get(f.name, (f.name,)) for f in fields(event)):
        meaning = f": {meanings[names]}" if names in meanings else ""
        yield ", ".join(f"`{name}`" for name in names) + meaning

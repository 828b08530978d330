"""The events of the journal."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import muster.common.fault_events  # noqa: F401 (its classes are events)
from generation.markdown import table
from muster.common.events import event_kinds

_EXPLAINED = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.MULTILINE)
"""The names and the meaning of fields in the part `Attributes` of a docstring."""


def events() -> list[str]:
    """A row for each event: when it is written, and its fields."""
    rows = []
    for event in event_kinds():
        when, _, _ = _parts(event)
        rows.append((f"`{event.name}`", when, "<br>".join(_fields(event))))
    return table(("event", "when it is written", "fields"), rows)


def _parts(event: Any) -> tuple[str, str, str]:
    """When an event is written, and the part of its docstring about its fields."""
    return inspect.cleandoc(event.__doc__ or "").partition("\n\nAttributes:\n")


def _fields(event: Any) -> Iterator[str]:
    """The fields in order; fields that share a meaning stand together before it. Base classes may
    explain some."""
    explained = {
        tuple(names.split(", ")): meaning.removesuffix(".")
        for kind in reversed(event.__mro__)
        for names, meaning in _EXPLAINED.findall(_parts(kind)[2])
    }
    together = {name: names for names in explained for name in names}
    for names in dict.fromkeys(together.get(f.name, (f.name,)) for f in fields(event)):
        meaning = f": {explained[names]}" if names in explained else ""
        yield ", ".join(f"`{name}`" for name in names) + meaning

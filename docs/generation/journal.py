"""The events of the journal."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import muster.common.fault_events  # noqa: F401 (its classes are events)
from generation.markdown import table
from muster.common.events import Event

_EXPLAINED = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.MULTILINE)
"""The names and the meaning of fields in the part `Attributes` of a docstring."""


def events() -> list[str]:
    """A row for each event: when it is written, and its fields."""
    rows = []
    for event in Event.__subclasses__():
        when, _, attributes = inspect.cleandoc(event.__doc__ or "").partition("\n\nAttributes:\n")
        rows.append((f"`{event.name}`", when, "<br>".join(_fields(event, attributes))))
    return table(("event", "when it is written", "fields"), rows)


def _fields(event: Any, attributes: str) -> Iterator[str]:
    """The fields in order; fields that share a meaning stand together before it."""
    explained = {
        tuple(names.split(", ")): meaning.removesuffix(".")
        for names, meaning in _EXPLAINED.findall(attributes)
    }
    together = {name: names for names in explained for name in names}
    for names in dict.fromkeys(together.get(f.name, (f.name,)) for f in fields(event)):
        meaning = f": {explained[names]}" if names in explained else ""
        yield ", ".join(f"`{name}`" for name in names) + meaning

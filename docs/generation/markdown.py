"""Pieces of Markdown."""

import inspect
import json
from collections.abc import Iterable
from typing import Any


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table; a vertical bar inside a cell is escaped."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def prose(thing: type) -> list[str]:
    """The docstring that a class itself has, as paragraphs."""
    own = thing.__dict__.get("__doc__")
    if not own:
        return []
    paragraphs = inspect.cleandoc(own).split("\n\n")
    return [line for part in paragraphs for line in (" ".join(part.split()), "")]


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`" if isinstance(value, str) else f"`{value}`"

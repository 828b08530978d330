"""Reads the docstrings under the fields of sections, from their source.

Programs that run a fleet do not need them: `Section` says why pydantic does not load them.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise

from muster.common.config import Section


def field_texts(section: type[Section]) -> dict[str, str]:
    """The docstring of each field of a section that has one, also of inherited fields."""
    return {
        name: text
        for of in reversed(section.__mro__)
        if issubclass(of, Section)
        for name, text in _declared(of)
    }


def first_sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    found = re.match(r"(.*?[.?])(\s|$)", text, re.DOTALL)
    return " ".join((found[1] if found else text.partition("\n\n")[0]).split())


def _declared(section: type[Section]) -> Iterator[tuple[str, str]]:
    """The fields that a class itself declares, each with the docstring under it."""
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(parsed, ast.ClassDef)
    for field, below in pairwise(parsed.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)

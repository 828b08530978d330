"""Names of devices, groups and covariates as labels of figures: shortened and told apart.

A label has little room and a name may have any length, so a figure may show less than the name. The
page then states the full name below the figure.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

LONGEST = 24
"""The most letters of a name that a figure shows, unless it has less room."""

_WORD = re.compile(r"[\s_\-./=:]*[^\s_\-./=:]*[\s_\-./=:]*")

_shortened: ContextVar[dict[str, str] | None] = ContextVar("shortened", default=None)


@contextmanager
def noting_names() -> Iterator[dict[str, str]]:
    """Collect every name that `drawable` changes meanwhile: what it returned, to the full name."""
    found: dict[str, str] = {}
    token = _shortened.set(found)
    try:
        yield found
    finally:
        _shortened.reset(token)


def drawable(name: str, longest: int = LONGEST) -> str:
    """Return `name` in ASCII letters, which every font has, without some of its words if too long.

    Draw it with `parse_math=False`, because a client may be called "$x$".
    """
    return _noted(_fitting(name, longest), name)


def _fitting(name: str, longest: int) -> str:
    label = "".join(c if c.isascii() and c.isprintable() else "?" for c in name)
    return label if len(label) <= longest else _without_words(label, longest)


def _noted(label: str, name: str) -> str:
    """The label, told apart from those of other names, and noted with the full name."""
    found = _shortened.get()
    if found is None or label == name:
        return label
    # Two names may have become the same label; then the second one gets a number.
    candidates = (f"{label} ({number})" if number > 1 else label for number in count(1))
    label = next(one for one in candidates if found.get(one, name) == name)
    found[label] = name
    return label


def _without_words(label: str, longest: int) -> str:
    """The first word and the last ones: names often differ in their last words and numbers.

    A single word that is too long is cut, because there is no better place.
    """
    first, *others = [word for word in _WORD.findall(label) if word]
    tails = ["".join(others[start:]) for start in range(len(others))]
    short = (f"{head}…{tail}" for head in (first, "") for tail in tails)
    return next((one for one in short if len(one) <= longest), f"{label[: longest - 1]}…")

"""What the part `Attributes` of a class's docstring says."""

import inspect
import re
from collections.abc import Mapping

_EXPLAINED = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def parts(kind: type) -> tuple[str, str]:
    """What the docstring of a class says before the part, and the part itself."""
    text, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
    return text, attributes


def explained(kind: type) -> Mapping[tuple[str, ...], str]:
    """The meaning of attributes by their names, of which some share one. Base classes may explain
    some."""
    return {
        tuple(names.split(", ")): meaning.removesuffix(".")
        for each in reversed(kind.__mro__)
        for names, meaning in _EXPLAINED.findall(parts(each)[1])
    }

"""Reads files strictly: the sections of a scenario are pydantic models, strict, frozen and closed.

The class of a section is in the module that uses it. The docstrings under its fields are for
readers of the code and for users: docs/scenario.md is generated from them.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from muster.common.causes import outer_cause, own_place
from muster.common.errors import ConfigError

S = TypeVar("S", bound="Section")

_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""For each type of mistake about a bound: words for it, and the key of the bound in pydantic's
context."""

_UNKNOWN = "unknown_key"
"""The type of mistake of an unknown key of which `inner_section` has said what it may mean."""

_SHOWN = 120
"""Most characters of a wrong value that a message shows."""


class Section(BaseModel):
    """A section of a scenario. It refuses unknown keys, and values of another type.

    The docstrings of its fields are not loaded (`use_attribute_docstrings`), because every program
    would take a third of a second longer to start. For the same reason its validator is built when
    it is used first (`defer_build`), because a program uses few of them.
    """

    model_config = ConfigDict(
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )

    def to_json(self) -> str:
        """The section as JSON with every default. Absent settings are left out, as in TOML."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a section that `to_json` wrote.

        Raises:
            ConfigError: `text` is not such a section; the message names all mistakes.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ConfigError(_report(error, cls, f"JSON of {cls.__name__}")) from None


def validate(cls: type[S], values: Mapping[str, Any], source: str) -> S:
    """Return `values`, as parsed from TOML, as a section.

    Args:
        source: where the values come from, for the message.

    Raises:
        ConfigError: there are mistakes, each of which the message names with its dotted path, what
            was found and what was expected; or code of the user's own that checks them failed.
    """
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_report(error, cls, source)) from None
    except Exception as error:
        if not own_place(error):
            raise
        raise ConfigError(f"{source}: {outer_cause(error)}") from None


def inner_section(cls: type[S], values: Mapping[str, Any]) -> S:
    """Return `values` as a section inside another one. Only here is it known which plug-in a
    scenario has chosen, and so which keys an unknown key may mean.

    Raises:
        ValidationError: there are mistakes.
    """
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        mistakes = [_explained(detail, cls) for detail in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(error.title, mistakes) from None


def _explained(detail: ErrorDetails, cls: type[Section]) -> InitErrorDetails:
    """A mistake in a section, with what an unknown key may mean."""
    kind: str | PydanticCustomError = detail["type"]
    if kind == "extra_forbidden":
        kind = PydanticCustomError(_UNKNOWN, f"unknown key{_suggestion(cls, detail['loc'])}")
    elif kind == _UNKNOWN:
        kind = PydanticCustomError(_UNKNOWN, detail["msg"])
    return InitErrorDetails(
        type=kind, loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {})
    )


def _report(error: ValidationError, cls: type[Section], source: str) -> str:
    details = error.errors(include_url=False)
    # A check of a whole section may report several contradictions, one on each line.
    mistakes = [line for detail in details for line in _mistake(detail, cls).splitlines()]
    noun = "mistake" if len(mistakes) == 1 else "mistakes"
    return "\n".join([f"{source}: {len(mistakes)} {noun}", *(f"  {line}" for line in mistakes)])


def _mistake(detail: ErrorDetails, cls: type[Section]) -> str:
    path, found, message = dotted(detail["loc"]), detail["input"], detail["msg"]
    if detail["type"] == "missing":
        return f"{path}: required, but missing"
    if detail["type"] == "extra_forbidden":
        return f"{path}: unknown key{_suggestion(cls, detail['loc'])}"
    if detail["type"] == _UNKNOWN:
        return f"{path}: {message}"
    if detail["type"] == "value_error":
        reason = message.removeprefix("Value error, ")
        return f"{path}: {reason}" if path else reason
    if detail["type"] == "list_type" and isinstance(found, Mapping) and _is_tables(cls, path):
        return f"{path}: expected a list of tables, found one table; write [[{path}]] above it"
    if detail["type"] in _BOUNDS:
        words, key = _BOUNDS[detail["type"]]
        bound = detail["ctx"][key]
        text = f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
        return f"{path}: expected {words} {text}, found {_short(found)}"
    expected = re.sub(r"^\w+ should ", "to ", re.sub(r"^\w+ should be ", "", message))
    return f"{path}: expected {expected}, found {_short(found)}"


def _is_tables(cls: type[Section], path: str) -> bool:
    """Whether a key of a file stands for a list of tables."""
    field = cls.model_fields.get(path)
    return field is not None and bool(_sections(field.annotation))


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a whole number that is too long
        text = f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _suggestion(cls: type[Section], path: tuple[int | str, ...]) -> str:
    *above, key = path
    close = difflib.get_close_matches(str(key), _keys_at(cls, above), n=1)
    return f"; did you mean {close[0]!r}?" if close and close[0] != key else ""


def _keys_at(cls: type[Section], path: Sequence[int | str]) -> set[str]:
    """Keys that are allowed below `path`."""
    sections = {cls}
    for part in path:
        if isinstance(part, str):
            fields = [s.model_fields[part] for s in sections if part in s.model_fields]
            sections = {s for field in fields for s in _sections(field.annotation)}
    return {
        field.alias or key for section in sections for key, field in section.model_fields.items()
    }


def _sections(annotation: Any) -> set[type[Section]]:
    """The section classes that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {annotation}
    return set[type[Section]]().union(*map(_sections, get_args(annotation)))


def dotted(path: tuple[int | str, ...]) -> str:
    """`("groups", 0, "count")` as `groups[0].count`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text

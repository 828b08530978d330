"""The form in which a person chooses a fault and its settings, computed from the fault's class: its
docstring, and the types, bounds, defaults and docstrings of its fields."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from muster.common.faults import FaultKind
from muster.common.field_texts import field_texts, first_sentence
from muster.common.units import Quantity
from muster.emulator.faults.catalogue import INJECTED

_UNITS = {"s": "s", "ms": "ms", "mib": "MiB", "bytes": "bytes", "percent": "%"}
"""Units by the last word of a field's name."""

FieldType = Literal["number", "whole number", "choice", "switch", "quantity", "text"]


@dataclass(frozen=True, slots=True)
class FormField:
    """A setting of a fault.

    Attributes:
        unit: the unit of its values; empty if they have none, or are written with one.
        about: what it means.
        default: as a person would write it; None if a value is required.
        least, most: inclusive bounds, as far as there are any.
        choices: the possible values of a choice.
        example: a value with a unit, of a quantity.
    """

    name: str
    type: FieldType
    unit: str
    about: str
    default: str | None
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True)
class FaultForm:
    """A kind of fault.

    Attributes:
        about: what it does, in a sentence.
        roles: what it can strike.
        lasts: whether it has a duration.
    """

    kind: str
    about: str
    roles: tuple[str, ...]
    lasts: bool
    fields: tuple[FormField, ...]


@cache
def fault_forms() -> tuple[Mapping[str, Any], ...]:
    """The forms of all faults that can be injected by hand, as JSON values."""
    return tuple(asdict(form_of(name, INJECTED[name])) for name in sorted(INJECTED))


def form_of(kind: str, fault: type[FaultKind]) -> FaultForm:
    """The form of a fault that is called `kind`."""
    texts = field_texts(fault)
    fields = tuple(
        _field(name, field, texts.get(name, ""))
        for name, field in fault.model_fields.items()
        if name != "kind"
    )
    about = first_sentence(inspect.getdoc(fault) or "")
    return FaultForm(kind, about, tuple(sorted(fault.roles)), fault.lasts, fields)


def _field(name: str, field: FieldInfo, about: str) -> FormField:
    quantity = next((mark for mark in field.metadata if isinstance(mark, Quantity)), None)
    kind = "quantity" if quantity else _type(field.annotation)
    return FormField(
        name,
        kind,
        "" if quantity or name in _UNITS.values() else _UNITS.get(name.rpartition("_")[2], ""),
        " ".join(about.split()),
        _default(field, quantity),
        None if quantity else _bound(field.metadata, annotated_types.Ge, "ge"),
        None if quantity else _bound(field.metadata, annotated_types.Le, "le"),
        get_args(field.annotation) if kind == "choice" else (),
        quantity.example.strip('"') if quantity else "",
    )


def _type(annotation: Any) -> FieldType:
    if get_origin(annotation) is Literal:
        return "choice"
    types: dict[Any, FieldType] = {bool: "switch", int: "whole number", float: "number"}
    return types.get(annotation, "text")


def _default(field: FieldInfo, quantity: Quantity | None) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if quantity is not None:
        return quantity.text(value)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(
        value, float
    ) else str(value)  # fmt: skip


def _bound(metadata: Iterable[Any], of: type, name: str) -> float | None:
    return next((getattr(mark, name) for mark in metadata if isinstance(mark, of)), None)

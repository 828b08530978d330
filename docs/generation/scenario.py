"""The tables of a scenario, and the plug-ins that it can choose."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from generation.markdown import prose, table, value_text
from muster.client.availability import Availability
from muster.common.bounds import LARGEST
from muster.common.config import Section
from muster.common.distributions import Distribution
from muster.common.field_texts import field_texts
from muster.common.per_device import PerDevice
from muster.common.plugins import Plugin, Registry
from muster.common.units import Quantity
from muster.emulator.scenario.plug_ins import PLUG_INS
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.task import Task
from muster.tasks.tasks import TASKS

_SHARED: Mapping[str, type[Plugin]] = {"groups.availability": Availability}
"""Whose settings all plug-ins of a registry have."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}

_SIGNS: tuple[tuple[type[Any], str, str], ...] = (
    (annotated_types.Gt, "gt", ">"),
    (annotated_types.Ge, "ge", "≥"),
    (annotated_types.Lt, "lt", "<"),
    (annotated_types.Le, "le", "≤"),
)


def scenario_sections() -> list[str]:
    """Every table of a scenario with its keys, in the order of the file."""
    return list(_section(Scenario, ""))


def _section(section: type[Section], path: str, heading: str = "") -> Iterator[str]:
    yield from (f"### `{heading}`" if heading else "### Top level", "", *prose(section))
    fields = {_key(name, field): field for name, field in _fields(section).items()}
    yield from _keys(fields)
    for key, field in fields.items():
        below = f"{path}.{key}".lstrip(".")
        kind = _bare(field.annotation)
        if get_origin(kind) is list and _has_table(element := _bare(get_args(kind)[0])):
            yield from _section(element, below, f"[[{below}]]")
        for part in _alternatives(kind):
            if _has_table(part):
                yield from _section(part, below, f"[{below}]")


def _has_table(kind: Any) -> bool:
    """Whether the keys of a section stand in a table of their own; those of plug-ins follow."""
    return _is_section(kind) and (kind is Task or not issubclass(kind, Plugin))


def _keys(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    rows = [
        (f"`{key}`", _type(field), _default(field), _text(field)) for key, field in fields.items()
    ]
    yield from (*table(("key", "value", "default", "meaning"), rows), "")


def _fields(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields of a section, described by the docstrings under them."""
    texts = field_texts(section)
    fields = {name: copy(field) for name, field in section.model_fields.items()}
    for name, field in fields.items():
        field.description = texts.get(name)
    return fields


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _text(field: FieldInfo) -> str:
    if field.description:
        return field.description
    kind = _bare(field.annotation)
    if get_origin(kind) is list:
        kind = _bare(get_args(kind)[0])
    return prose(kind)[0] if _is_section(kind) and prose(kind) else ""


def _bare(annotation: Any) -> Any:
    """An annotation without None and without what is annotated to it."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    there = _alternatives(annotation)
    return _bare(there[0]) if len(there) == 1 and there[0] is not annotation else annotation


def _alternatives(annotation: Any) -> list[Any]:
    """What a value may be, but None."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for part in get_args(annotation) if part is not types.NoneType]
    return [annotation]


def _extra(annotation: Any) -> list[Any]:
    """What is annotated to a type itself."""
    if get_origin(annotation) is not Annotated:
        return []
    inner, *extra = get_args(annotation)
    spread = [m for e in extra for m in (e.metadata if isinstance(e, FieldInfo) else [e])]
    return [*_extra(inner), *spread]


def _type(field: FieldInfo) -> str:
    if (kind := _per_device(field)) is not None:
        return _type_per_device(field, kind)
    if (quantity := _quantity_of(field)) is not None:
        return f"like `{quantity.example}`" + _limits(_marks(field), quantity.text)
    return _word(field.annotation) + _limits(field.metadata)


def _type_per_device(field: FieldInfo, kind: PerDevice) -> str:
    """What a number may be that can differ from device to device."""
    parts = [
        part for each in _alternatives(field.annotation) for part in _alternatives(_bare(each))
    ]
    words = [_word(part) for part in parts if get_origin(_bare(part)) is Literal]
    amount = "number" if kind.quantity is None else f"like `{kind.quantity.example}`"
    limits = _limits(kind.number, None if kind.quantity is None else kind.quantity.text)
    return " or ".join([*words, f"{amount}{limits}", _word(Distribution)])


def _per_device(field: FieldInfo) -> PerDevice | None:
    """What a field is marked by whose number can differ from device to device."""
    return next((mark for mark in _marks(field) if isinstance(mark, PerDevice)), None)


def _quantity_of(field: FieldInfo) -> Quantity | None:
    """What a field with a unit is marked by."""
    if (kind := _per_device(field)) is not None:
        return kind.quantity
    return next((mark for mark in _marks(field) if isinstance(mark, Quantity)), None)


def _marks(field: FieldInfo) -> list[Any]:
    """What is annotated to a field, or to what its value may be."""
    parts = [field.annotation, *_alternatives(field.annotation)]
    return [*field.metadata, *(mark for part in parts for mark in _extra(part))]


def _word(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _word(get_args(kind)[0]) + _limits(_extra(kind))
    if get_origin(kind) is Literal:
        return " or ".join(value_text(value) for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_word(part) for part in _alternatives(kind))
    if get_origin(kind) is list:
        return _list(get_args(kind)[0])
    if get_origin(kind) is dict:
        return f"by name: {_word(get_args(kind)[1])}"
    if not _is_section(kind):
        return _WORDS[kind]
    for path, registry in PLUG_INS.items():
        if issubclass(kind, Plugin) and any(issubclass(c, kind) for c in _classes(registry)):
            return f"[{registry.noun}](#{_anchor(registry.noun, path)})"
    return "table"


def _list(element: Any) -> str:
    kind = _bare(element)
    if _has_table(kind):
        return "tables"
    if get_origin(kind) is list:
        return f"list of {_word(kind).replace('list', 'lists', 1)}"
    plural = "" if get_origin(kind) is Literal else "s"
    return f"list of {_word(kind)}{plural}{_limits(_extra(element))}"


def _classes(registry: Registry[Any]) -> Iterable[type[Plugin]]:
    return registry.built_in.values()


def _limits(metadata: Iterable[Any], text_of: Callable[[float], str] | None = None) -> str:
    found = [
        text
        for limit in metadata
        for cls, name, sign in _SIGNS
        if isinstance(limit, cls) and (text := _limit(sign, getattr(limit, name), text_of))
    ]
    patterns = [p for m in metadata if (p := getattr(m, "pattern", None))]
    return "".join(f", {text}" for text in [*found, *(f"matching `{p}`" for p in patterns)])


def _limit(sign: str, value: float, text_of: Callable[[float], str] | None) -> str:
    """A limit; empty for those that the page states once for all numbers."""
    if text_of is not None:
        return f"{sign} {text_of(value)}"
    if abs(value) == LARGEST:
        return ""
    if value == 1 / LARGEST:
        return "> 0"
    if value == 2**63:
        return f"{sign} 2⁶³"
    text = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return f"{sign} {re.sub(r'e[+]0*', 'e', text)}"


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is None or (default == "" and field.metadata):  # nobody can give an empty text
        return "absent"
    if field.is_required() or default == "":  # a plug-in's name is filled in when it is found
        return "*required*"
    if isinstance(default, Plugin):
        return _table(default)
    if isinstance(default, Section):
        return ""
    quantity = None if isinstance(default, str) else _quantity_of(field)
    return value_text(default if quantity is None else quantity.text(default))


def _table(default: Plugin) -> str:
    """A plug-in as one writes it: its name, or a table where settings are given too."""
    given = {key: getattr(default, key) for key in default.model_fields_set}
    if len(given) == 1:
        return f"`{default.kind}`"
    names = [key for key in type(default).model_fields if key in given]
    return f"`{{ {', '.join(f'{key} = {_barevalue_text(given[key])}' for key in names)} }}`"


def _barevalue_text(value: Any) -> str:
    return value_text(value).strip("`")


def plug_ins() -> list[str]:
    """Every registry: what is built in, and its settings."""
    return [line for path, registry in PLUG_INS.items() for line in _registry(path, registry)]


def _title(noun: str, path: str) -> str:
    return f"{noun.capitalize()}: {path}"


def _anchor(noun: str, path: str) -> str:
    """The anchor that GitHub gives the registry's heading."""
    kept = re.sub(r"[^\w\- ]", "", _title(noun, path).lower())
    return kept.replace(" ", "-")


def _registry(path: str, registry: Registry[Any]) -> Iterator[str]:
    yield from (f"### {_title(registry.noun, path)}", "")
    yield f"Entry points: `{registry.group}`. Built in:"
    yield ""
    common = {"kind", *Task.model_fields} if registry is TASKS else {"kind"}
    if shared := _SHARED.get(path):
        common |= shared.model_fields.keys()
        fields = {key: field for key, field in _fields(shared).items() if key != "kind"}
        yield from ("Every one of them has:", "", *_keys(fields))
    for name, plugin in sorted(registry.built_in.items()):
        yield from (f"#### `{name}`", "", *prose(plugin))
        fields = {key: field for key, field in _fields(plugin).items() if key not in common}
        if registry is TASKS and plugin.model_fields["model"].default != Task.model_fields[
            "model"
        ].default:  # fmt: skip
            fields = {"model": _fields(plugin)["model"], **fields}
        if fields:
            yield from _keys(fields)
    yield from _tables_inside(registry)


def _tables_inside(registry: Registry[Any]) -> Iterator[str]:
    """The tables that settings of plug-ins are, each once."""
    if registry is TASKS:  # theirs stand with the scenario's own
        return
    inside = {
        key: kind
        for _, plugin in sorted(registry.built_in.items())
        for key, field in plugin.model_fields.items()
        if _is_section(kind := _bare(field.annotation)) and not issubclass(kind, Plugin)
    }
    for key, kind in inside.items():
        yield from (f"#### The table `{key}`", "", *prose(kind), *_keys(_fields(kind)))

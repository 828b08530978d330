"""Writes the generated parts of docs/protocol.md and docs/scenario.md.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is
written by hand. `--check` writes nothing, and exits with 1 when a page is not what it should be.
"""

import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import click
from pydantic.fields import FieldInfo

import muster.client.session
import muster.server.rounds.lifecycle
from muster.client.availability import AVAILABILITIES, Availability
from muster.client.device import DROP_OUT, PROFILES, DeviceSettings
from muster.client.networks import NETWORKS
from muster.common import schedules
from muster.common.bounds import LARGEST
from muster.common.compression import CODECS
from muster.common.config import Section
from muster.common.distributions import DISTRIBUTIONS
from muster.common.exchange import Decision, Outcome, Reason
from muster.common.plugins import Plugin, Registry
from muster.common.units import Quantity
from muster.emulator.fleet.enrollment import ENROLLMENTS
from muster.emulator.links.settings import PRESETS
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import AGGREGATORS
from muster.server.knowledge.propensity import CLASSIFIERS
from muster.server.rounds.selection import SELECTIONS
from muster.tasks.models import MODELS
from muster.tasks.partitions import PARTITIONS
from muster.tasks.task import Task
from muster.tasks.tasks import TASKS
from muster.v1 import fleet_pb2 as pb
from muster.wire import (
    CHUNK_BYTES,
    INLINE_BYTES,
    LEAST_CHUNK_BYTES,
    PROTOCOL_VERSION,
    messages,
)
from muster.wire.channels import server_options

DOCS = Path(__file__).resolve().parent
PROTO = DOCS.parent / "proto/muster/v1"

PLUG_INS: Mapping[str, Registry[Any]] = {
    "task": TASKS,
    "task.model": MODELS,
    "task.partition": PARTITIONS,
    "training.learning_rate": schedules.SCHEDULES,
    "groups.covariates, groups.device": DISTRIBUTIONS,
    "groups.enrollment": ENROLLMENTS,
    "groups.availability": AVAILABILITIES,
    "groups.link.compression": CODECS,
    "server.selection": SELECTIONS,
    "server.aggregator": AGGREGATORS,
    "server.aggregator, its tables": CLASSIFIERS,
}
"""The registries, by the keys of the scenario that choose from them."""

_SHARED: Mapping[str, type[Plugin]] = {"groups.availability": Availability}
"""Whose settings all plug-ins of a registry have."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}

_SIGNS: tuple[tuple[type[Any], str, str], ...] = (
    (annotated_types.Gt, "gt", ">"),
    (annotated_types.Ge, "ge", "≥"),
    (annotated_types.Lt, "lt", "<"),
    (annotated_types.Le, "le", "≤"),
)


# --- text ----------------------------------------------------------------------------------------


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


# --- the scenario --------------------------------------------------------------------------------


def scenario_sections() -> list[str]:
    """Every table of a scenario with its keys, in the order of the file."""
    return list(_section(Scenario, ""))


def _section(section: type[Section], path: str, heading: str = "") -> Iterator[str]:
    yield from (f"### `{heading}`" if heading else "### Top level", "", *prose(section))
    fields = {_key(name, field): field for name, field in section.model_fields.items()}
    yield from _keys(fields)
    for key, field in fields.items():
        below = f"{path}.{key}".lstrip(".")
        kind = _bare(field.annotation)
        if get_origin(kind) is list and _is_section(element := _bare(get_args(kind)[0])):
            yield from _section(element, below, f"[[{below}]]")
        for part in _alternatives(kind):
            if _is_section(part) and (part is Task or not issubclass(part, Plugin)):
                yield from _section(part, below, f"[{below}]")


def _keys(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    rows = [
        (f"`{key}`", _type(field), _default(field), _text(field)) for key, field in fields.items()
    ]
    yield from (*table(("key", "value", "default", "meaning"), rows), "")


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
    if (quantity := _quantity_of(field)) is not None:
        return f"like `{quantity.example}`" + _limits(_marks(field), quantity.text)
    return _word(field.annotation) + _limits(field.metadata)


def _quantity_of(field: FieldInfo) -> Quantity | None:
    """What a field with a unit is marked by."""
    return next((mark for mark in _marks(field) if isinstance(mark, Quantity)), None)


def _marks(field: FieldInfo) -> list[Any]:
    """What is annotated to a field, or to what its value may be."""
    parts = [field.annotation, *_alternatives(field.annotation)]
    return [*field.metadata, *(mark for part in parts for mark in _extra(part))]


def _word(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _word(get_args(kind)[0]) + _limits(_extra(kind))
    if get_origin(kind) is Literal:
        return " or ".join(_value(value) for value in get_args(kind))
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
    if _is_section(kind):
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
    if field.is_required() or default == "":  # a plug-in's name is filled in when it is found
        return "*required*"
    if default is None:
        return "absent"
    if isinstance(default, Plugin):
        return _table(default)
    if isinstance(default, Section):
        return ""
    quantity = _quantity_of(field)
    return _value(default if quantity is None else quantity.text(default))


def _table(default: Plugin) -> str:
    """A plug-in as one writes it: its name, or a table where settings are given too."""
    given = {key: getattr(default, key) for key in default.model_fields_set}
    if len(given) == 1:
        return f"`{default.kind}`"
    names = [key for key in type(default).model_fields if key in given]
    return f"`{{ {', '.join(f'{key} = {_bare_value(given[key])}' for key in names)} }}`"


def _bare_value(value: Any) -> str:
    return _value(value).strip("`")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if not isinstance(value, str) else f'`"{value}"`'


# --- plug-ins ------------------------------------------------------------------------------------


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
        fields = {key: field for key, field in shared.model_fields.items() if key != "kind"}
        yield from ("Every one of them has:", "", *_keys(fields))
    for name, plugin in sorted(registry.built_in.items()):
        yield from (f"#### `{name}`", "", *prose(plugin))
        fields = {key: field for key, field in plugin.model_fields.items() if key not in common}
        if registry is TASKS and plugin.model_fields["model"].default != Task.model_fields[
            "model"
        ].default:  # fmt: skip
            fields = {"model": plugin.model_fields["model"], **fields}
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
        yield from (f"#### The table `{key}`", "", *prose(kind), *_keys(kind.model_fields))


# --- devices -------------------------------------------------------------------------------------


def profiles() -> list[str]:
    """What the device profiles preset, a column for each."""
    devices = {name: DeviceSettings.model_validate({"profile": name}) for name in PROFILES}
    keys = dict.fromkeys(key for preset in PROFILES.values() for key in _leaves(preset))
    rows = [
        (f"`device.{key}`", *(_preset(device, key) for device in devices.values())) for key in keys
    ]
    rows.append(("`participation.drop_out`", *(f"`{DROP_OUT.get(name, 0.0)}`" for name in devices)))
    return table(("key", *devices), rows)


def _leaves(preset: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in preset.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _preset(device: DeviceSettings, key: str) -> str:
    """A setting of a profile; a dash where it is absent, or where nothing looks at it."""
    mobile, chargeable = device.connectivity.kind == "mobile", device.battery is not None
    if (".wifi" in key and not mobile) or (key.startswith("charging") and not chargeable):
        return "–"
    value: Any = device
    for part in key.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Section):
        return "defaults"
    return "–" if value is None else _value(value)


def networks() -> list[str]:
    """The classes of connectivity."""
    rows = [
        (n.name, "yes" if n.metered else "no", *(_mbps(rate) for rate in (n.down_mbps, n.up_mbps)))
        for n in NETWORKS
    ]
    return table(("network", "metered", "down, Mbit/s", "up, Mbit/s"), rows)


def _mbps(rate: float) -> str:
    return "takes no time" if math.isinf(rate) else f"{rate:g}"


def links() -> list[str]:
    """What the profiles of links preset, a row for each."""
    keys = list(dict.fromkeys(key for preset in PRESETS.values() for key in preset))
    rows = [
        (f"`{name}`", *(str(preset.get(key, "–")) for key in keys))
        for name, preset in PRESETS.items()
    ]
    return table(("profile", *(f"`{key}`" for key in keys)), rows)


# --- the protocol --------------------------------------------------------------------------------


def calls(file: str) -> Callable[[], list[str]]:
    """The calls of a .proto file, each with its comment."""

    def render() -> list[str]:
        text = (PROTO / file).read_text()
        rows = []
        for comment, name, request, reply in re.findall(
            r"((?:  //.*\n)+)  rpc (\w+)\((.*?)\) returns \((.*?)\);", text
        ):
            rows.append((f"`{name}`", f"`{request}`", f"`{reply}`", _comment(comment)))
        return table(("call", "up", "down", "what it is for"), rows)

    return render


def transitions(
    known: Mapping[tuple[StrEnum, StrEnum], StrEnum], phases: Iterable[StrEnum]
) -> Callable[[], list[str]]:
    """A transition table, by phase."""

    def render() -> list[str]:
        rows = [
            (phase.value, event.value, after.value)
            for phase in phases
            for (before, event), after in known.items()
            if before is phase
        ]
        return table(("phase", "event", "next phase"), rows)

    return render


def numbers(wire: Any, prefix: str, words: type[StrEnum]) -> Callable[[], list[str]]:
    """An enum of fleet.proto with the word that the ledger and the journal use for each value.

    A comment in the file belongs to the values that follow it, up to the next; one that ends in a
    comma to the first of them alone.
    """

    def render() -> list[str]:
        text = (PROTO / "fleet.proto").read_text()
        body = re.search(rf"enum {prefix.title()} {{\n(.*?)\n}}", text, re.DOTALL)
        assert body is not None, prefix
        comment, rows, fresh = "", [], True
        for line in body[1].splitlines():
            if line.strip().startswith("//"):
                comment = f"{comment if not fresh else ''}\n{line}"
                fresh = False
                continue
            fresh = True
            name = line.split()[0]
            value = words.__members__.get(name.removeprefix(f"{prefix}_"))
            if value is not None:
                rows.append((str(wire.Value(name)), f"`{name}`", value.value, _comment(comment)))
            if comment.endswith(","):
                comment = ""
        return table(("number", "on the wire", "in ledger and journal", "meaning"), rows)

    return render


def _comment(text: str) -> str:
    return " ".join(line.strip().removeprefix("//").strip() for line in text.splitlines()).strip()


def limits() -> list[str]:
    """Sizes and times that both ends share."""
    options = dict(server_options())
    every_s = options["grpc.keepalive_time_ms"] / 1000
    dead_s = options["grpc.keepalive_timeout_ms"] / 1000
    ping = f"every {every_s:g} s; unanswered for {dead_s:g} s: the connection is dead"
    rows = [
        ("protocol version", str(PROTOCOL_VERSION), "`muster.wire.PROTOCOL_VERSION`"),
        ("a chunk, at most", _bytes(CHUNK_BYTES), "`muster.wire.CHUNK_BYTES`"),
        (
            "a chunk of a download, at least",
            _bytes(LEAST_CHUNK_BYTES),
            "`muster.wire.LEAST_CHUNK_BYTES`",
        ),
        (
            "a length in bytes, an offset of Fetch, a number of examples, at most",
            f"{messages.LARGEST:,}",
            "`muster.wire.messages.LARGEST`",
        ),
        ("a model or update inline, at most", _bytes(INLINE_BYTES), "`muster.wire.INLINE_BYTES`"),
        (
            "a message, at most",
            _bytes(options["grpc.max_receive_message_length"]),
            "`muster.wire.channels`",
        ),
        (
            "streams of one connection, at most",
            str(options["grpc.max_concurrent_streams"]),
            "`muster.wire.channels`",
        ),
        ("HTTP/2 ping when nothing else is sent", ping, "`muster.wire.channels`"),
    ]
    return table(("limit", "value", "where"), rows)


def _bytes(size: int) -> str:
    return f"{size:,} bytes"


PAGES: Mapping[str, Mapping[str, Callable[[], list[str]]]] = {
    "protocol.md": {
        "fleet": calls("fleet.proto"),
        "operator": calls("operator.proto"),
        "limits": limits,
        "rounds": transitions(
            muster.server.rounds.lifecycle.TRANSITIONS, muster.server.rounds.lifecycle.RoundPhase
        ),
        "session": transitions(
            muster.client.session.ON_RUNNING_CLOCKS, muster.client.session.SessionPhase
        ),
        "decisions": numbers(pb.Decision, "DECISION", Decision),
        "outcomes": numbers(pb.Outcome, "OUTCOME", Outcome),
        "reasons": numbers(pb.Reason, "REASON", Reason),
    },
    "scenario.md": {
        "sections": scenario_sections,
        "profiles": profiles,
        "networks": networks,
        "links": links,
        "plug-ins": plug_ins,
    },
}

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str, text: str) -> str:
    """`text` with every generated part of the page as it should be."""
    parts = PAGES[page]
    missing = parts.keys() ^ {match[2] for match in _PART.finditer(text)}
    if missing:
        raise click.ClickException(f"{page}: no place, or no text, for {', '.join(missing)}")

    def fill(match: re.Match[str]) -> str:
        lines = "\n".join(parts[match[2]]()).strip()
        return f"{match[1]}\n{lines}\n\n{match[3]}"

    return _PART.sub(fill, text)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a page is out of date.")
def main(check: bool) -> None:
    """Write the generated parts of the pages."""
    for page in PAGES:
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        new = rendered(page, text)
        if new != text and check:
            raise click.ClickException(f"docs/{page} is not what the code says: make docs")
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()

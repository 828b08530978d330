"""`muster list`: says what a scenario can choose by name, with a line for each.

The lines come from the registries, their docstrings and the examples themselves.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from muster.cli.options import JSON, failures_as_status, print_result
from muster.common.errors import ConfigError

if TYPE_CHECKING:
    from muster.common.catalogue import Preset
    from muster.common.plugins import Registry


class Listed(NamedTuple):
    """A line of a list: a name, and what it stands for."""

    name: str
    about: str


class NamedList(NamedTuple):
    """A list of `muster list`.

    Attributes:
        about: where its names are used.
        read: makes the list, sorted by name.
    """

    about: str
    read: Callable[[], list[Listed]]


SYNONYMS = {"rules": "aggregators", "profiles": "devices", "link-profiles": "links"}
"""Other words of the pages for a list."""


@click.command("list")
@click.argument("kind", metavar="[KIND]", required=False)
@JSON
@failures_as_status
def list_names(kind: str | None, as_json: bool) -> None:
    """List what there is of a KIND, with a line for each: tasks, models, aggregators, faults,
    devices, links, lives, examples and others. Without KIND, list the kinds."""
    kinds = named_lists()
    if kind is None:
        found = [Listed(name, kinds[name].about) for name in sorted(kinds)]
    elif (known := SYNONYMS.get(kind, kind)) in kinds:
        found = kinds[known].read()
    else:
        raise ConfigError(f"there is no list of {kind!r}; there are: {', '.join(sorted(kinds))}")
    print_result(lambda: lines_of(found), lambda: [row._asdict() for row in found], as_json)


def completing(
    kind: str,
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes the names of a list in a shell; of faults, only those that commands can inject."""

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        rows = [row for row in named_lists()[kind].read() if row.name.startswith(begun)]
        if kind == "faults":
            from muster.emulator.faults.catalogue import INJECTED

            rows = [row for row in rows if row.name in INJECTED]
        return [CompletionItem(row.name, help=row.about) for row in rows]

    return complete


def lines_of(rows: list[Listed]) -> str:
    """The lines of a list, with aligned columns."""
    width = max(len(row.name) for row in rows)
    return "\n".join(f"{row.name:<{width}}  {row.about}".rstrip() for row in rows)


def named_lists() -> Mapping[str, NamedList]:
    """All lists, by the name that `muster list` takes."""
    from muster.emulator.scenario.plug_ins import PLUG_INS

    registered = {
        _plural(registry.noun): NamedList(f"for {path}", partial(_registered, registry))
        for path, registry in PLUG_INS.items()
    }
    return registered | {
        "examples": NamedList("for muster init --example", listed_examples),
        "links": NamedList("for groups.link.profile", _links),
        "devices": NamedList("for groups.device.profile", _devices),
        "lives": NamedList("for groups.life", _lives),
        "studies": NamedList("for muster study", _studies),
    }


def listed_examples() -> list[Listed]:
    from muster.common.field_texts import first_sentence
    from muster.emulator.project.examples import examples

    return [Listed(example.name, first_sentence(example.about)) for example in examples()]


def _registered(registry: "Registry[Any]") -> list[Listed]:
    """The plug-ins of a registry, also those of installed packages."""
    from muster.common.field_texts import first_sentence

    return [
        Listed(name, first_sentence(inspect.getdoc(registry.find(name)) or ""))
        for name in sorted(registry.names())
    ]


def _studies() -> list[Listed]:
    from muster.studies.registry import STUDIES

    return [Listed(name, STUDIES.find(name).about) for name in sorted(STUDIES.names())]


def _devices() -> list[Listed]:
    from muster.client.life.device_settings import DEVICES

    return _presets(DEVICES)


def _links() -> list[Listed]:
    from muster.emulator.links.settings import LINKS

    return _presets(LINKS)


def _lives() -> list[Listed]:
    from muster.emulator.scenario.settings import LIVES

    return _presets(LIVES)


def _presets(presets: "Mapping[str, Preset]") -> list[Listed]:
    """The presets of a catalogue, each with its settings and where its numbers come from."""
    return [
        Listed(name, " · ".join(filter(None, (_toml(p.values), p.about, p.provenance))))
        for name, p in sorted(presets.items())
    ]


def _toml(value: Any) -> str:
    """A value of a scenario as a scenario has it, on one line."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    keys = ", ".join(f"{key} = {_toml(part)}" for key, part in value.items())
    return f"{{ {keys} }}" if keys else "{}"


def _plural(noun: str) -> str:
    """The plural of a noun as one word."""
    word = noun.replace(" ", "-")
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"

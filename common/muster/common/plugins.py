"""Plug-ins by name, from a table of built-in classes, as `module:Class`, or from an entry point.

A plug-in is a `Section`: its settings are its fields, and a scenario has them beside its `kind`.

    BUILT_IN = {"fedavg": FedAvg}
    AGGREGATORS = Registry("aggregator", "muster.aggregators", BUILT_IN)

    class Server(Section):
        aggregator: Annotated[SerializeAsAny[Aggregator], BeforeValidator(AGGREGATORS.parse)]
"""

import difflib
import importlib
import importlib.metadata
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from muster.common.causes import note_own
from muster.common.config import Section, inner_section
from muster.common.own_code import looked_in

P = TypeVar("P", bound="Plugin")


class Plugin(Section):
    """A plug-in: a part that a scenario chooses by name. Its settings are its fields."""

    kind: str = ""
    """The registered name, or `module:Class`, by which the scenario chose it."""


class Registry(Generic[P]):
    """The plug-ins of one sort.

    Args:
        noun: the word for such a plug-in in messages, for example "aggregator".
        group: entry-point group in which installed packages add plug-ins.
        built_in: the built-in classes by name; the table is the documentation.
        bases: the classes from one of which a plug-in derives; empty: any class of plug-ins.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        built_in: Mapping[str, type[P]],
        bases: Sequence[type] = (),
    ) -> None:
        self.noun = noun
        self.group = group
        self.built_in = built_in
        self.bases = tuple(bases)

    def find(self, kind: str) -> type[P]:
        """Return the class called `kind`.

        Raises:
            ValueError: there is no such class, or its module cannot be imported. The message lists
                the names that exist.
        """
        if kind in self.built_in:
            return self.built_in[kind]
        if ":" in kind:
            return self._checked(kind, _import(kind))
        for point in importlib.metadata.entry_points(group=self.group, name=kind):
            with _failures_explained(kind):
                found = point.load()
            note_own(point.module)
            return self._checked(kind, found)
        raise ValueError(self._not_there(kind))

    def _not_there(self, kind: str) -> str:
        names = sorted(self.names())
        there = f"there are: {', '.join(names)}, or your own as 'module:Class'"
        close = difflib.get_close_matches(kind, names, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        return f"there is no {self.noun} called {kind!r}{meant}; {there}"

    def names(self) -> set[str]:
        """The names of built-in and installed plug-ins."""
        return {
            *self.built_in,
            *(p.name for p in importlib.metadata.entry_points(group=self.group)),
        }

    def parse(self, value: object) -> object:
        """Turn `"name"` or `{"kind": "name", **settings}` into a plug-in; return other values as
        they are."""
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str):
            raise ValueError(f"kind is required: the name of one of {sorted(self.names())}")
        return inner_section(self.find(kind), value)

    def _checked(self, kind: str, found: object) -> type[P]:
        if not (isinstance(found, type) and issubclass(found, Plugin)):
            raise ValueError(
                f"{kind!r} is {found!r}; expected a class derived from muster's {self.noun} class"
            )
        if self.bases and not issubclass(found, self.bases):
            bases = " or ".join(f"{base.__module__}.{base.__name__}" for base in self.bases)
            raise ValueError(f"{kind!r} is not a {self.noun}; derive its class from {bases}")
        if missing := getattr(found, "__abstractmethods__", None):
            lacking = ", ".join(sorted(missing))
            raise ValueError(
                f"{kind!r} does not define {lacking}, which its base class leaves to it"
            )
        return found  # type: ignore[return-value]


def _import(path: str) -> object:
    module, _, name = path.partition(":")
    with _failures_explained(module):
        found = importlib.import_module(module)
    note_own(module)
    try:
        return getattr(found, name)
    except AttributeError:
        raise ValueError(f"module {module!r} has no {name!r}") from None


@contextmanager
def _failures_explained(module: str) -> Iterator[None]:
    """Turn whatever code of the user's own raises while it is imported into a mistake of one line.

    Raises:
        ValueError: the import failed.
    """
    try:
        yield
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        where = f"; looked in {looked_in()}" if absent else ""
        raise ValueError(f"cannot import {module!r}: {error}{where}") from None
    except (Exception, SystemExit) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        last = traceback.extract_tb(error.__traceback__)[-1]
        inside = not isinstance(error, SyntaxError) and "importlib" not in last.filename
        where = f" ({last.filename}, line {last.lineno})" if inside else ""
        raise ValueError(f"cannot import {module!r}: {why}{where}") from None

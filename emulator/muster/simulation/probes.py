"""Counts how many histories reach each rare place of the product.

A *probe* is a statement of the product with a name, in `probes.toml`. `install` lets Python load
the modules that have some with a call before each of them. The files stay as they are, so that
production pays nothing and the code says nothing of them.
"""

import re
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

_TABLE = Path(__file__).with_name("probes.toml")
_CALL = "_reached"

_now = set[str]()


@cache
def probes() -> Mapping[str, Mapping[str, str]]:
    """The statements of the probes by their names, of every module that has some."""
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def reached() -> frozenset[str]:
    """The names of the probes that were reached since the last call."""
    found = frozenset(_now)
    _now.clear()
    return found


def with_probes(source: str, named: Mapping[str, str]) -> str:
    """The source of a module with a call before the last line of each of these statements; the
    lines before it only tell which one is meant.

    Raises:
        ValueError: a statement is not exactly once in the source.
    """
    for name, statement in named.items():
        *before, probed = (re.escape(line) for line in statement.splitlines())
        context = "".join(rf" *{line}\n" for line in before)
        pattern = re.compile(rf"^({context})( *)({probed})$", re.MULTILINE)
        source, times = pattern.subn(rf'\1\2{_CALL}("{name}")\n\2\3', source)
        if times != 1:
            raise ValueError(f"{name!r}: found {times} statements {statement!r}, expected one")
    return source


class _Loader(SourceFileLoader):
    """Loads a module with its probes. It neither reads nor writes compiled files."""

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return compile(with_probes(source, probes()[fullname]), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_CALL] = _now.add
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in probes() else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def install() -> None:
    """Load modules with their probes from now on."""
    loaded = sorted(probes().keys() & sys.modules.keys())
    assert not loaded, f"imported before their probes were installed: {', '.join(loaded)}"
    sys.meta_path.insert(0, _Finder())


def begin_process() -> None:
    """Prepare a process that plays histories for another one. Ctrl-C reaches all of them, and the
    other one ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    install()

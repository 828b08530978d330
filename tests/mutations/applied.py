"""A plugin of pytest that puts one defect of `mutants.toml` into the product, when the module that
has it is imported: MUTANT=name pytest -p tests.mutations.applied …

The files stay as they are, so that a test that is interrupted leaves nothing behind.
"""

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
MUTANT = "MUTANT"
"""The environment variable that names the mutant."""


@dataclass(frozen=True)
class Mutant:
    """A defect that somebody could make by mistake.

    Attributes:
        about: the rule, the mode or the restart that it breaks.
        file: the file that has it, from the root of the repository.
        before: text that is exactly once in the file.
        after: the text in its place.
        test: the test that must fail, as pytest names it.
    """

    about: str
    file: str
    before: str
    after: str
    test: str

    @property
    def module(self) -> str:
        """The name of the module, whose source root is the first folder."""
        return ".".join(Path(self.file).with_suffix("").parts[1:])

    @cached_property
    def source(self) -> str:
        return (ROOT / self.file).read_text(encoding="utf-8")

    def code(self) -> CodeType:
        """The code of the module with the defect."""
        return compile(self.source.replace(self.before, self.after), self.file, "exec")


def mutants() -> Mapping[str, Mutant]:
    """The mutants of the table, by name."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Mutant(**row) for name, row in found.items()}


class _Loader(SourceFileLoader):
    """Loads the module with the defect. It neither reads nor writes compiled files."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(ROOT / mutant.file))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return self._mutant.code()


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == self._mutant.module else None
        if spec is not None:
            spec.loader = _Loader(self._mutant)
        return spec


if name := os.environ.get(MUTANT):
    chosen = mutants()[name]
    assert chosen.module not in sys.modules, f"{chosen.module} was imported before the plugin"
    sys.meta_path.insert(0, _Finder(chosen))

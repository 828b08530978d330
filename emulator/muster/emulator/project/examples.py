"""The examples of muster: scenarios, with the files that some of them need.

In the repository they are in `examples/`, and the wheel has a copy of that folder in this package,
`example_files`.
"""

import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from muster.common.errors import ConfigError

_IN_WHEEL = Path(__file__).parent / "example_files"
_IN_REPOSITORY = Path(__file__).parents[4] / "examples"
EXAMPLES = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_REPOSITORY


class Example(NamedTuple):
    """A scenario of `EXAMPLES`.

    Attributes:
        name: its path below `EXAMPLES`, without the suffix.
    """

    name: str
    scenario: Path

    @property
    def about(self) -> str:
        """The comment at the beginning of the scenario, up to the first command in it."""
        lines = self.scenario.read_text(encoding="utf-8").splitlines()
        prose = takewhile(lambda line: re.match(r"# \S", line), lines)
        return " ".join(line.removeprefix("# ") for line in prose).rstrip(":")

    def files(self) -> list[Path]:
        """The scenario, and what belongs to it: everything in its folder that is no scenario."""
        folder = self.scenario.parent
        if folder == EXAMPLES:
            return [self.scenario]
        beside = [path for path in folder.iterdir() if path.suffix != ".toml"]
        below = [path for part in beside for path in (part, *part.rglob("*")) if path.is_file()]
        return sorted([self.scenario, *(path for path in below if "__pycache__" not in path.parts)])


def examples() -> list[Example]:
    """All examples, by name."""
    scenarios = [*EXAMPLES.glob("*.toml"), *EXAMPLES.glob("*/*.toml")]
    names = [scenario.relative_to(EXAMPLES).with_suffix("").as_posix() for scenario in scenarios]
    return sorted(map(Example, names, scenarios))


def find_example(name: str) -> Example:
    """The example called `name`.

    Raises:
        ConfigError: there is none.
    """
    found = {example.name: example for example in examples()}
    if name not in found:
        raise ConfigError(
            f"there is no example called {name!r}; there are: {', '.join(found)} (muster list "
            f"examples says what they are)"
        )
    return found[name]

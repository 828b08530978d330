"""Data of the user's own: where labelled examples come from. A source reads them into arrays.

A message about a file says which file, line or row and column it means, what was expected and what
was found.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.inputs import Inputs

Text = Annotated[str, Field(min_length=1, max_length=4096)]
"""A path, or the name of a column."""

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=100)]
"""A name that an argument of a function can have."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Labelled examples as they were read.

    Attributes:
        x: numbers, shape (examples, *shape of one), or several such arrays by name.
        y: the label of each example: numbers or texts, shape (examples,).
        user: whose each example is, for the natural partition: numbers or texts; None: unknown.
        place: says where the label of a row is, for messages.
    """

    x: Inputs
    y: Array
    user: Array | None = None
    place: Callable[[int], str] | None = None

    def __len__(self) -> int:
        return len(self.y)


class DataSource(Plugin):
    """A source of labelled examples."""

    needs: ClassVar[tuple[str, str] | None] = None
    """A module that it imports, and the extra of muster that has it."""

    hint: ClassVar[str] = ""
    """What to do if the path does not exist, besides looking for a slip in it."""

    path: Text
    """The file, or the folder, with the examples; relative to the scenario file."""

    @property
    def where(self) -> str:
        """What messages call it."""
        return self.path

    def paths(self) -> Sequence[str]:
        """The files and folders that it reads."""
        return [self.path]

    def fetched(self) -> Mapping[str, str]:
        """Download what is not on this machine. Only a command does, before it starts anything.

        Returns:
            The settings that say where it is; none if nothing is to be downloaded.

        Raises:
            ConfigError: a package is missing, or it cannot be downloaded.
        """
        return {}

    def check(self) -> None:
        """Check early that there is something to read.

        Raises:
            ConfigError: a file or a package is missing.
        """
        for path in self.paths():
            if not Path(path).exists():
                raise ConfigError(
                    f"task.source: {path} does not exist; expected a path relative to the "
                    f"scenario file{self.hint}"
                )
        self.require_package()

    def require_package(self) -> None:
        """Check that the package is there that it needs.

        Raises:
            ConfigError: it is missing.
        """
        if self.needs is not None and find_spec(self.needs[0]) is None:
            raise ConfigError(
                f"task.source: {self.kind} needs the package {self.needs[0]}; install it by "
                f"pip install 'muster-fl[{self.needs[1]}]'"
            )

    @abstractmethod
    def read(self) -> tuple[LabelledRows, LabelledRows | None]:
        """Return the examples, and those for testing; None: the source does not divide them.

        Raises:
            ConfigError: they cannot be read, or are not labelled examples.
        """


def refused(where: object, expected: str, found: str, mend: str = "") -> ConfigError:
    """The mistake in a source, as an error to raise.

    Args:
        where: file, line or row, and column.
    """
    return ConfigError(
        f"task.source: {where}: expected {expected}, found {found}{mend and f'; {mend}'}"
    )


def require_finite(x: Array, where: object) -> None:
    """Check that examples have no NaN and no infinite values.

    Raises:
        ConfigError: there is one; the message names its row, from 0.
    """
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        value = x[row][~np.isfinite(x[row])].flat[0]
        raise refused(
            f"{where}, row {row}",
            "finite numbers",
            str(value),
            "fill such values, or leave the rows out",
        )

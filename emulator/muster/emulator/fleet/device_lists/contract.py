"""What a reader of a list of devices gets and gives."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What a person may say about a list of devices.

    Attributes:
        speed: examples per second of the device `of`, or of the middle one, where a list has only
            scores.
        of: the name of that device.
        server: where the server is, in a list of places.
        ping: a file with the round trips between places.
    """

    speed: float | None = None
    of: str | None = None
    server: str | None = None
    ping: Path | None = None

    def given(self) -> set[str]:
        """The names of the options that were given."""
        return {each.name for each in fields(self) if getattr(self, each.name) is not None}


@dataclass(frozen=True, slots=True)
class ImportedDevices:
    """Devices of a list.

    Attributes:
        what: what was read.
        columns: the columns of a table of devices, each with a cell for every device.
        notes: what a person must know about the numbers.
    """

    what: str
    columns: Mapping[str, Sequence[float | str]]
    notes: Sequence[str] = ()


def numbers_in(entry: object, keys: Sequence[str]) -> list[float] | None:
    """The numbers of a table of a file by their keys; None: one is missing, not finite, or below
    0."""
    found = [entry.get(key) if isinstance(entry, Mapping) else None for key in keys]
    numbers = [
        float(number)  # type: ignore[arg-type]
        for number in found
        if type(number) in (int, float) and 0 <= number < math.inf  # type: ignore[operator]
    ]
    return numbers if len(numbers) == len(keys) else None


class DeviceListFormat(NamedTuple):
    """A format of lists of devices.

    Attributes:
        about: whose it is, in words.
        matches: whether the content of a file has this format.
        read: the devices of a file, given its path and content; raises ValueError, with the path.
        options: the names of the options that it uses.
    """

    about: str
    matches: Callable[[bytes], bool]
    read: Callable[[Path, bytes, ImportOptions], ImportedDevices]
    options: frozenset[str] = frozenset()

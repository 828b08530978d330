"""What a fuzz target is."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Mutate = Callable[[bytes, random.Random], bytes]
"""Changes an input in terms of its structure, for example a field of a message."""


@dataclass(frozen=True)
class Target:
    """A reader of input from outside, and what must hold of it.

    Attributes:
        name: the name on the command line, and of the folder in `corpus`.
        read: reads an input. It accepts it and returns what it found, or it raises one of
            `refusals`. Anything else that it raises is a defect.
        refusals: the errors with which the reader documents that it refuses an input.
        verify: checks what was found, for example that it comes back if it is written and read
            again. Whatever it raises is a defect.
        seeds: inputs with which fuzzing begins; most are valid.
        mutate: None: inputs are changed byte by byte only.
        most_bytes: the longest input that is tried.
    """

    name: str
    read: Callable[[bytes], Any]
    refusals: tuple[type[Exception], ...]
    verify: Callable[[Any], None]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Mutate | None = None
    most_bytes: int = 4096

    def accepts(self, data: bytes) -> bool:
        """Whether an input is accepted. An exception is a defect."""
        try:
            found = self.read(data)
        except self.refusals:
            return False
        self.verify(found)
        return True


def same(one: object, other: object) -> bool:
    """Whether two values mean the same; a NaN means the same as another."""
    return one == other or repr(one) == repr(other)

"""What devices have said about channel slots, kept in a file: a gateway that is killed and started
again must neither forget a word, since its device has its answer and says it no more, nor decide
otherwise.

A line is JSON: [round, client, active, of]. Lines of the last two rounds are kept, as in `slots`.
"""

import json
from pathlib import Path
from typing import NamedTuple

from muster.common.files import write_atomic

_ROUNDS_KEPT = 2


def no_words(path: str | None) -> None:
    """Make the place of a gateway's words, without any: for the first start of a run."""
    if path is not None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).unlink(missing_ok=True)


class Word(NamedTuple):
    """A device's word on a round: whether it wants to transfer, as one of so many who speak."""

    round: int
    client: str
    active: bool
    of: int

    @property
    def line(self) -> bytes:
        """As it stands in the file."""
        return json.dumps(self).encode() + b"\n"


class Words:
    """The words of the last rounds.

    Args:
        path: of the file; what an earlier gateway wrote there is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rounds: dict[int, dict[str, Word]] = {}
        *lines, torn = (path.read_bytes() if path.exists() else b"").split(b"\n")
        for line in lines:
            self._keep(Word(*json.loads(line)))
        if torn:  # by a kill: it was not answered, and will be said again
            self._rewrite()

    def all(self) -> list[Word]:
        """Every word that is kept, in the order in which they were said."""
        return [word for round in self._rounds.values() for word in round.values()]

    def add(self, word: Word) -> None:
        """Write a word down; the first of a device in a round holds."""
        if word.client in self._rounds.get(word.round, {}):
            return
        if self._keep(word):
            self._rewrite()
        else:
            with open(self._path, "ab", buffering=0) as file:
                file.write(word.line)

    def _rewrite(self) -> None:
        write_atomic(self._path, *(word.line for word in self.all()))

    def _keep(self, word: Word) -> bool:
        """Whether it is the first of its round: earlier rounds are forgotten then."""
        first = word.round not in self._rounds
        self._rounds.setdefault(word.round, {})[word.client] = word
        for over in sorted(self._rounds)[:-_ROUNDS_KEPT]:
            del self._rounds[over]
        return first

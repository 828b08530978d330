"""Keeps the words of devices about channel slots, one per device and round, in a file.

A gateway that is killed and started again must not forget a word, because a device that has its
answer does not repeat it. It must not decide differently either.

A line is JSON, [round, client, active, of], and its checksum. Lines of the last two rounds are
kept, as in `slots`.
"""

import json
from pathlib import Path
from typing import NamedTuple

import xxhash

from muster.common.errors import RunFailed
from muster.common.files import write_atomic

_ROUNDS_KEPT = 2


def no_words(path: str | None) -> None:
    """Make the folder for a gateway's words, without words, before its first start in a run."""
    if path is not None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).unlink(missing_ok=True)


class Word(NamedTuple):
    """A device's word on a round.

    Attributes:
        active: whether the device wants to transfer.
        of: number of devices of the group that contend in the round.
    """

    round: int
    client: str
    active: bool
    of: int

    @property
    def line(self) -> bytes:
        """The line of the word in the file."""
        text = json.dumps(self)
        return f"{text} {xxhash.xxh32_hexdigest(text.encode())}\n".encode()


class Words:
    """The words of the last rounds.

    Args:
        path: the file. Words that an earlier gateway wrote there are read.

    Raises:
        RunFailed: the file is damaged. A gateway that went on without a word would let other
            devices transfer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rounds: dict[int, dict[str, Word]] = {}
        *lines, torn = (path.read_bytes() if path.exists() else b"").split(b"\n")
        for line in lines:
            text, _, checksum = line.decode(errors="replace").rpartition(" ")
            if xxhash.xxh32_hexdigest(text.encode()) != checksum:
                raise RunFailed(
                    f"{path} is damaged: expected a word and its checksum, found {line!r:.100}. "
                    f"Resume the run: it begins its round again, without words"
                )
            self._keep(Word(*json.loads(text)))
        # A kill can cut the last line short. Its device got no answer and will send it again.
        if torn:
            self._rewrite()

    def all(self) -> list[Word]:
        """All words that are kept, in the order in which they were added."""
        return [word for round in self._rounds.values() for word in round.values()]

    def add(self, word: Word) -> None:
        """Write a word to the file, unless the device already has a word in this round."""
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
        """Keep a word in memory, and forget rounds that are too old. Return whether the word is the
        first of its round."""
        first = word.round not in self._rounds
        self._rounds.setdefault(word.round, {})[word.client] = word
        for over in sorted(self._rounds)[:-_ROUNDS_KEPT]:
            del self._rounds[over]
        return first

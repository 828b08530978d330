"""Keeps the words of devices about channel slots, one per device and round, in a file.

A gateway that is killed and started again must not forget a word, because a device that has its
answer does not repeat it. It must not decide differently either.

A line is JSON, [round, client, active, of], and its checksum. The words of the last two rounds of
each device are kept, as in `slots`. The file is written anew when half of it is older.
"""

import json
from pathlib import Path
from typing import NamedTuple

import xxhash
from pydantic import TypeAdapter, ValidationError

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


_FORMAT = TypeAdapter(Word)


def _word(line: bytes) -> Word | None:
    """The word of a line; None if the line is damaged."""
    text, _, checksum = line.decode(errors="replace").rpartition(" ")
    if xxhash.xxh32_hexdigest(text.encode()) != checksum:
        return None
    try:
        return _FORMAT.validate_json(text)
    except ValidationError:  # damage can keep a checksum of 32 bits
        return None


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
        self._kept: dict[tuple[str, int], Word] = {}
        self._rounds: dict[str, list[int]] = {}
        self._lines = 0  # in the file
        *lines, torn = (path.read_bytes() if path.exists() else b"").split(b"\n")
        for line in lines:
            if (word := _word(line)) is None:
                raise RunFailed(
                    f"{path} is damaged: expected a word and its checksum, found {line!r:.100}. "
                    f"Resume the run: it begins its round again, without words"
                )
            self._keep(word)
            self._lines += 1
        # A kill can cut the last line short. Its device got no answer and will send it again.
        if torn:
            self._rewrite()

    def all(self) -> list[Word]:
        """All words that are kept, in the order in which they were added."""
        return list(self._kept.values())

    def add(self, word: Word) -> None:
        """Write a word to the file, unless the device already has a word in this round, or in two
        later ones."""
        if (word.client, word.round) in self._kept or not self._keep(word):
            return
        if self._lines >= 2 * len(self._kept):
            self._rewrite()
        else:
            with open(self._path, "ab", buffering=0) as file:
                file.write(word.line)
            self._lines += 1

    def _rewrite(self) -> None:
        write_atomic(self._path, *(word.line for word in self.all()))
        self._lines = len(self._kept)

    def _keep(self, word: Word) -> bool:
        """Keep a word in memory, and forget the device's rounds that are too old. Return whether
        the word itself is kept."""
        rounds = self._rounds.setdefault(word.client, [])
        self._kept[word.client, word.round] = word
        rounds.append(word.round)
        for over in sorted(rounds)[:-_ROUNDS_KEPT]:
            rounds.remove(over)
            del self._kept[word.client, over]
        return word.round in rounds

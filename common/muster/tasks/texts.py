"""Data sets of texts, each read once per process."""

import io
import re
import tarfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muster.tasks.datasets import Dataset
from muster.tasks.files import verified

# At least two letters, and not so long that it must be part of an encoded attachment.
_WORD = re.compile(r"[a-z]{2,20}")

TEST_RATIO = 0.2
"""Share of each role's text, at its end, that is for testing."""


@dataclass(frozen=True, slots=True)
class _Posts:
    """Posts as numbers of their words: ranks in the training posts, most common word first."""

    train: list[npt.NDArray[np.int64]]
    train_y: npt.NDArray[np.int64]
    test: list[npt.NDArray[np.int64]]
    test_y: npt.NDArray[np.int64]


@cache
def news_words(directory: Path, vocabulary: int) -> Dataset:
    """Return 20 Newsgroups as weighted counts of the most common words in the training posts.

    The weight of a word is (1 + log count) · (1 + log((1 + posts) / (1 + posts with it))), and each
    post has norm 1 (Salton and Buckley, Information Processing and Management 1988). Examples are
    sparse rows of shape (vocabulary,).

    Raises:
        ConfigError: the file is missing, or its checksum is wrong.
    """
    from scipy.sparse import csr_array, diags_array  # type: ignore[import-untyped]

    posts = _posts(directory, vocabulary)

    def counted(texts: list[npt.NDArray[np.int64]]) -> csr_array:
        ends = np.cumsum([0, *map(len, texts)])
        words = np.concatenate(texts)
        counts = csr_array(
            (np.ones(len(words), np.float32), words, ends), shape=(len(texts), vocabulary)
        )
        counts.sum_duplicates()
        return counts

    counts = counted(posts.train)
    common = np.bincount(counts.indices, minlength=vocabulary)
    rarity = 1 + np.log((1 + len(posts.train)) / (1 + common))

    def weighted(counts: csr_array) -> csr_array:
        counts.data = (1 + np.log(counts.data)) * rarity[counts.indices].astype(np.float32)
        norms = np.sqrt(counts.multiply(counts).sum(axis=1))
        return diags_array((1 / np.maximum(norms, 1e-12)).astype(np.float32)).tocsr() @ counts

    train_x, test_x = weighted(counts), weighted(counted(posts.test))
    return Dataset(train_x, posts.train_y, test_x, posts.test_y, labels=20)


@cache
def news_tokens(directory: Path, vocabulary: int, tokens: int) -> Dataset:
    """Return 20 Newsgroups as the first known words of each post.

    Words outside the vocabulary are left out. Token 0 pads shorter posts at the beginning, and
    token 1 is the most common word.

    Raises:
        ConfigError: the file is missing, or its checksum is wrong.
    """
    posts = _posts(directory, vocabulary)

    def filled(texts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int32]:
        x = np.zeros((len(texts), tokens), np.int32)
        for row, text in zip(x, texts, strict=True):
            if len(text):
                row[-len(text) :] = text[:tokens] + 1
        return x

    return Dataset(
        filled(posts.train),
        posts.train_y,
        filled(posts.test),
        posts.test_y,
        labels=20,
        vocabulary=vocabulary + 1,
    )


def _posts(directory: Path, vocabulary: int) -> _Posts:
    """Read the posts of the archive without their headers, which name the group."""
    halves: dict[str, tuple[list[list[str]], list[str]]] = {"train": ([], []), "test": ([], [])}
    with tarfile.open(fileobj=io.BytesIO(*verified("20news", directory))) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                folder, group, _ = member.name.removeprefix("./").split("/")
                texts, groups = halves[folder.rpartition("-")[2]]
                _, _, text = file.read().decode("latin1").lower().partition("\n\n")
                texts.append(_WORD.findall(text))
                groups.append(group)
    (train, train_groups), (test, test_groups) = halves["train"], halves["test"]
    counts = Counter(chain.from_iterable(train))
    known = sorted(counts, key=lambda word: (-counts[word], word))[:vocabulary]
    number = {word: rank for rank, word in enumerate(known)}
    label = {group: place for place, group in enumerate(sorted(set(train_groups)))}

    def numbered(texts: list[list[str]]) -> list[npt.NDArray[np.int64]]:
        return [np.array([number[w] for w in text if w in number], np.int64) for text in texts]

    def labelled(groups: list[str]) -> npt.NDArray[np.int64]:
        return np.array([label[group] for group in groups], np.int64)

    return _Posts(numbered(train), labelled(train_groups), numbered(test), labelled(test_groups))


@cache
def shakespeare(
    directory: Path, characters: int, stride: int, test_stride: int, minimum: int
) -> Dataset:
    """Return windows of Tiny Shakespeare, each with the character that follows it.

    The text of a role consists of its speeches in order, each with a line break at its end. The
    characters of the whole file are numbered by code point.

    Args:
        characters: number of characters in a window.
        stride: number of characters between the beginnings of two windows.
        test_stride: the same at the end of each role's text, which is for testing.
        minimum: fewest characters of a role; roles with shorter texts are left out.

    Raises:
        ConfigError: the file is missing, or its checksum is wrong.
    """
    (body,) = verified("shakespeare", directory)
    text = body.decode()
    speeches: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        role, colon, said = block.strip("\n").partition(":\n")
        if colon:
            speeches.setdefault(role, []).append(said + "\n")
    roles = ["".join(said) for _, said in sorted(speeches.items())]
    alphabet = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32))
    parts: dict[str, list[npt.NDArray[np.int64]]] = {
        name: [] for name in ("x", "y", "user", "unit", "test_x", "test_y")
    }
    users = units = 0
    for role in roles:
        cut = int(len(role) * (1 - TEST_RATIO))
        if len(role) < minimum or min(cut, len(role) - cut) <= characters:
            continue
        code = np.searchsorted(alphabet, np.frombuffer(role.encode("utf-32-le"), np.uint32))
        for name, piece, step in (("", code[:cut], stride), ("test_", code[cut:], test_stride)):
            windows = np.lib.stride_tricks.sliding_window_view(piece, characters + 1)[::step]
            parts[f"{name}x"].append(windows[:, :-1].astype(np.uint8))
            parts[f"{name}y"].append(windows[:, -1].astype(np.int64))
        many = len(parts["y"][-1])
        parts["user"].append(np.full(many, users))
        # A piece is as long as ten windows, so windows of two pieces overlap only where they meet.
        piece = np.arange(many) * stride // (10 * characters)
        parts["unit"].append(units + piece)
        users, units = users + 1, units + int(piece[-1]) + 1
    joined = {name: np.concatenate(some) for name, some in parts.items()}
    return Dataset(
        joined["x"],
        joined["y"],
        joined["test_x"],
        joined["test_y"],
        labels=len(alphabet),
        vocabulary=len(alphabet),
        train_user=joined["user"],
        train_unit=joined["unit"],
    )

"""What devices have said about slots, over the death of their gateway."""

from pathlib import Path

import pytest

from muster.common.errors import RunFailed
from muster.emulator.gateway.words import Word, Words, no_words


def test_words_are_read_again_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "words"
    words, said = (
        Words(path),
        [Word(4, "b", True, 3), Word(4, "a", False, 3), Word(5, "a", True, 2)],
    )
    for word in said:
        words.add(word)
    assert Words(path).all() == words.all() == said


def test_the_first_word_of_a_device_in_a_round_holds(tmp_path: Path) -> None:
    words = Words(tmp_path / "words")
    words.add(Word(4, "a", True, 3))
    words.add(Word(4, "a", False, 2))
    assert Words(tmp_path / "words").all() == [Word(4, "a", True, 3)]


def test_words_of_two_rounds_are_kept(tmp_path: Path) -> None:
    words = Words(tmp_path / "words")
    for round in (1, 2, 3, 4):
        words.add(Word(round, "a", True, 1))
    assert [word.round for word in Words(tmp_path / "words").all()] == [3, 4]


def test_a_device_does_not_make_the_words_of_others_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "words"
    words, said = Words(path), Word(4, "a", True, 3)
    words.add(said)
    largest = 0
    for round in range(100, 1100):
        words.add(Word(round, "b", True, 1))
        largest = max(largest, path.stat().st_size)
    assert Words(path).all() == words.all()
    assert said in words.all()
    assert largest < 10 * len(Word(1000, "b", True, 1).line)


def test_a_word_that_is_too_old_is_not_written(tmp_path: Path) -> None:
    words = Words(tmp_path / "words")
    for round in (5, 6, 4):
        words.add(Word(round, "a", True, 1))
    assert [word.round for word in Words(tmp_path / "words").all()] == [5, 6]


def test_half_a_word_was_never_said(tmp_path: Path) -> None:
    path = tmp_path / "words"
    Words(path).add(Word(4, "a", True, 3))
    path.write_bytes(path.read_bytes() + Word(4, "b", True, 3).line[:-4])
    words = Words(path)
    assert words.all() == [Word(4, "a", True, 3)]
    words.add(Word(4, "c", True, 3))
    assert Words(path).all() == [Word(4, "a", True, 3), Word(4, "c", True, 3)]


@pytest.mark.parametrize("at", [1, 5, -3])
def test_a_damaged_word_is_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "words"
    Words(path).add(Word(4, "a", True, 3))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RunFailed, match=f"{path} is damaged"):
        Words(path)


def test_a_run_begins_without_words(tmp_path: Path) -> None:
    path = tmp_path / "gateway-g.words/words.jsonl"
    no_words(str(path))
    Words(path).add(Word(4, "a", True, 3))
    no_words(str(path))
    assert Words(path).all() == []
    no_words(None)

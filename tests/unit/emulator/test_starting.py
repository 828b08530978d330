"""What is said of a program that ended before it was ready."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.emulator.launch.starting import quoted


@pytest.mark.parametrize(
    ("blocks", "files", "left", "why"),
    [
        (0, 100, 9, ", because its disk has no room left (df, df -i); free some"),
        (5, 100, 0, ", because its disk has no inodes left (df, df -i); free some"),
        (5, 100, 9, ""),
        (5, 0, 0, ""),  # a file system that makes inodes as it needs them
    ],
)
def test_a_program_whose_log_had_no_room_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks: int, files: int, left: int, why: str
) -> None:
    found = SimpleNamespace(f_bavail=blocks, f_files=files, f_favail=left)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    log = tmp_path / "server.log"
    assert quoted("", log) == f". It left no log ({log}){why}"
    assert quoted("an error", log).endswith("| an error")


def test_a_log_in_a_folder_that_is_gone_is_only_named(tmp_path: Path) -> None:
    log = tmp_path / "gone/server.log"
    assert quoted("", log) == f". It left no log ({log})"


def test_a_lack_of_memory_is_told_also_before_the_stacks_of_all_threads() -> None:
    stacks = [f'  File "a.py", line {number} in call' for number in range(40)]
    log = "\n".join(["terminate called: std::bad_alloc", "Fatal Python error: Aborted", *stacks])
    assert quoted(log).splitlines()[1] == "  | terminate called: std::bad_alloc"


def test_a_death_without_a_known_cause_has_its_last_fifteen_lines() -> None:
    assert quoted("\n".join(map(str, range(40)))).count("\n  | ") == 15

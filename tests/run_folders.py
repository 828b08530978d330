"""Folders of runs that go on, for tests."""

from pathlib import Path


def has_committed(folder: Path, rounds: int) -> bool:
    """Whether the run has committed so many rounds."""
    journal = folder / "journal.jsonl"
    return journal.exists() and journal.read_bytes().count(b'"round_committed"') >= rounds

"""The manifest of a run folder protects what muster reads, and nothing else."""

from pathlib import Path

import pytest

from muster.emulator.records.manifest import Read, damaged_files, seal

THEIRS = {"docker-compose.yml", ".env", "notes.txt", "tables/metrics.csv"}
READ = {"summary.json", "journal.jsonl", "model.safetensors", "faults.json", "population.csv"}


@pytest.mark.parametrize("name", sorted(THEIRS | READ))
def test_only_what_muster_reads_must_not_change(tmp_path: Path, name: str) -> None:
    for each in THEIRS | READ:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(each)
    seal(tmp_path)
    assert not [*damaged_files(tmp_path, Read.AUDIT)]
    (tmp_path / name).write_text("changed")
    (tmp_path / "new.txt").write_text("new")
    found = [damage.file for damage in damaged_files(tmp_path, Read.AUDIT)]
    assert found == [name] * (name in READ)

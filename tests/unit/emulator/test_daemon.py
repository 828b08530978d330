"""What a run folder is taken back from containers with; no Docker."""

from pathlib import Path

from muster.emulator.launch.docker.daemon import take_back


def test_links_are_removed_from_a_run_folder_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    for each in (folder / "devices/a", other):
        each.mkdir(parents=True)
    (other / "file").write_text("unchanged")
    (folder / "ledger.sqlite").write_text("kept")
    (folder / "summary.json").symlink_to(other / "file")
    (folder / "devices/a/state").symlink_to(other)
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    take_back(folder)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {"ledger.sqlite", "devices", "devices/a"}
    assert (other / "file").read_text() == "unchanged"

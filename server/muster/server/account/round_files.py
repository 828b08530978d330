"""Folders of the run folder that have a file for each of some rounds or versions."""

from pathlib import Path

from muster.common.files import remove_unfinished


def round_file(round: int, kind: str) -> str:
    """The name of the file of a round.

    Args:
        kind: what follows the dot in the names of a folder's files.
    """
    return f"{round:06d}.{kind}"


def model_name(version: int) -> str:
    """Return the file name of a version's model."""
    return f"{version:06d}.safetensors"


def state_name(version: int) -> str:
    """Return the file name of the aggregator's state at a version."""
    return f"{version:06d}.state.safetensors"


def prepare_round_files(folder: Path, kind: str, newest: int) -> None:
    """Make a folder, and remove from it the files of rounds that were never committed.

    Args:
        newest: the newest committed round.
    """
    folder.mkdir(exist_ok=True)
    remove_unfinished(folder)
    for path in folder.glob(f"*.{kind}"):
        if path.stem.isdecimal() and int(path.stem) > newest:
            path.unlink()

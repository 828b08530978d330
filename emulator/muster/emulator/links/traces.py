"""The recordings that the devices of a group replay."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path

from muster.common import seeds
from muster.common.rates.reading import read_rate
from muster.common.rates.recording import Direction

TRACES: Mapping[str, Direction] = {"trace": "down", "trace_up": "up"}
"""The settings of a link that stand for recordings, with the direction of each."""


@lru_cache(maxsize=64)
def files_of(text: str) -> Sequence[Path]:
    """The files that a setting stands for: a file, those of a folder, or those of a pattern.

    Raises:
        ValueError: there are none.
    """
    path = Path(text)
    if path.is_dir():
        found = [each for each in path.iterdir() if each.is_file() and each.name[0] != "."]
    elif has_magic(text) and not path.exists():
        found = [each for each in map(Path, glob(text, recursive=True)) if each.is_file()]
    else:
        return [path]
    if not found:
        raise ValueError(f"{text} has no files; expected recordings of links")
    return sorted(found)


def files_of_devices(text: str, seed: int, clients: Sequence[str]) -> str | list[str]:
    """The file of each device, or the one of all of them, if a setting stands for one file only.

    A device draws its place among the files once for both directions, so that these fit together.

    Raises:
        ValueError: there are no files.
    """
    files = [str(path) for path in files_of(text)]
    if len(files) == 1:
        return files[0]
    drawn = [float(seeds.stream(seed, "trace file", client).random()) for client in clients]
    return [files[int(number * len(files))] for number in drawn]


def require_usable(text: str, direction: Direction, format: str | None, least_bps: float) -> None:
    """Check that all files that a setting stands for can be read and are fast enough.

    Raises:
        ValueError: they are not. Of several files, the message names the first mistake, and says
            how many files have some.
    """
    files, mistakes = files_of(text), list[str]()
    for path in files:
        try:
            _require_usable(path, direction, format, least_bps)
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes and len(files) == 1:
        raise ValueError(mistakes[0])
    if mistakes:
        raise ValueError(
            f"{mistakes[0]}; mend the file, or take it out of {text} ({len(mistakes):,} of the "
            f"{len(files):,} files there cannot be used)"
        )


def _require_usable(path: Path, direction: Direction, format: str | None, least_bps: float) -> None:
    mean_bps = read_rate(path, direction, format).mean_bps
    if mean_bps < least_bps:
        raise ValueError(
            f"{path} carries {mean_bps:.3g} bit/s in the mean, expected at least {least_bps:g} "
            f"bit/s, as for every link; take another trace"
        )

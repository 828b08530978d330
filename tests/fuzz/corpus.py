"""The corpus: the inputs of every target that are worth keeping, in `corpus/TARGET`."""

import hashlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.target import Target

CORPUS = Path(__file__).parent / "corpus"
_MUSTER = str(Path(__file__).parents[2])
_MOST_BYTES = 2048
"""Longer inputs are not kept."""

Line = tuple[str, int, int]
"""A step of a program: the file, the line, and the line before."""


def corpus_of(name: str) -> Path:
    """The folder of a target's inputs."""
    return CORPUS / name


def inputs_of(name: str) -> list[Path]:
    """The inputs of a target."""
    return sorted(corpus_of(name).glob("*"))


def file_name(data: bytes) -> str:
    """The name under which an input is kept."""
    return hashlib.sha256(data).hexdigest()[:16]


def keep_smallest(target: Target, found: Path) -> int:
    """Keep in the corpus the smallest inputs that together reach what all of them reach. Inputs
    that once broke a target have a name of their own, and stay.

    Args:
        found: a folder with further inputs.

    Returns:
        The number of inputs in the corpus.
    """
    corpus = corpus_of(target.name)
    corpus.mkdir(parents=True, exist_ok=True)
    inputs = {path.name: path.read_bytes() for path in corpus.iterdir()}
    named = {data for name, data in inputs.items() if name != file_name(data)}
    known = {*inputs.values(), *(path.read_bytes() for path in found.glob("*"))}
    reached = set[Line]()
    for data in named:
        reached |= _reached(target, data)
    for data in sorted(known - named, key=lambda data: (len(data), data)):
        new = set[Line]() if len(data) > _MOST_BYTES else _reached(target, data) - reached
        reached |= new
        if new:
            (corpus / file_name(data)).write_bytes(data)
        else:
            (corpus / file_name(data)).unlink(missing_ok=True)
    return len(inputs_of(target.name))


def _reached(target: Target, data: bytes) -> set[Line]:
    """The lines of muster that an input reaches."""
    lines = set[Line]()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_MUSTER) or "/muster/" not in file:
            return None
        before = 0

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            lines.add((file, before, frame.f_lineno))
            before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        target.accepts(data)
    finally:
        sys.settrace(None)
    return lines

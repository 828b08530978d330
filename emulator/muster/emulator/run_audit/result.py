"""What an audit has checked, what it could not check, and the differences that it found."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_DIFFERENCES = 20
"""Differences of a check that are kept; all are counted."""


@dataclass(frozen=True)
class Difference:
    """Something in a run folder that is not as it should be.

    Attributes:
        what: what was compared.
        expected: what it should be, by the derivation of the audit.
        found: what the folder has.
        round: the round that it is about; None if it is about none.
        device: the client that it is about; None if it is about none.
    """

    what: str
    expected: str
    found: str
    round: int | None = None
    device: str | None = None

    def __str__(self) -> str:
        places = [
            *([] if self.round is None else [f"round {self.round}"]),
            *([] if self.device is None else [f"device {self.device}"]),
        ]
        where = f"{', '.join(places)}: " if places else ""
        return f"{where}{self.what}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class AuditCheck:
    """The result of one check.

    Attributes:
        title: what was checked.
        compared: how many values were compared.
        differing: how many of them differ.
        differences: the first ones.
        skipped: the parts that could not be checked, each with the reason.
    """

    title: str
    compared: int
    differing: int
    differences: Sequence[Difference]
    skipped: Sequence[str]


@dataclass(frozen=True)
class AuditResult:
    """The results of all checks of a run folder."""

    folder: Path
    checks: Sequence[AuditCheck]

    @property
    def agrees(self) -> bool:
        """Whether no difference was found."""
        return not any(check.differing for check in self.checks)

    @property
    def first(self) -> Difference | None:
        """The first difference; None if there is none."""
        return next((d for check in self.checks for d in check.differences), None)

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        checks = [
            {**vars(check), "differences": [vars(d) for d in check.differences]}
            for check in self.checks
        ]
        return {"folder": str(self.folder), "agrees": self.agrees, "checks": checks}


@dataclass
class CheckLog:
    """Collects the result of a check while it runs."""

    title: str
    _compared: int = 0
    _differing: int = 0
    _differences: list[Difference] = field(default_factory=list)
    _skipped: list[str] = field(default_factory=list)

    def compare(
        self,
        what: str,
        expected: object,
        found: object,
        round: int | None = None,
        device: str | None = None,
    ) -> None:
        """Count a comparison, and record a difference if the two values are not equal."""
        self._compared += 1
        if expected != found:
            self._differing += 1
            if len(self._differences) < MOST_DIFFERENCES:
                texts = _text(expected), _text(found)
                self._differences.append(Difference(what, *texts, round, device))

    def compare_numbers(
        self,
        what: str,
        expected: float,
        found: float | None,
        tolerance: float,
        round: int | None = None,
        device: str | None = None,
    ) -> None:
        """Count a comparison of two numbers, and record a difference if they differ by more than a
        relative tolerance."""
        close = found is not None and math.isclose(expected, found, rel_tol=tolerance)
        self.compare(what, found if close else expected, found, round, device)

    def require(
        self,
        holds: bool,
        what: str,
        expected: str,
        found: object,
        round: int | None = None,
        device: str | None = None,
    ) -> None:
        """Count a comparison, and record a difference unless it `holds`."""
        self.compare(what, expected, expected if holds else _text(found), round, device)

    def skip(self, what: str) -> None:
        """Record what cannot be checked, and why."""
        self._skipped.append(what)

    @property
    def result(self) -> AuditCheck:
        """The check so far."""
        return AuditCheck(
            self.title,
            self._compared,
            self._differing,
            tuple(self._differences),
            tuple(dict.fromkeys(self._skipped)),
        )


def sha256(*parts: bytes) -> str:
    """The SHA-256 of bytes, one part after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sha256_of(path: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal; None if there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else repr(value)

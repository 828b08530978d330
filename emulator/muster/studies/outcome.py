"""The outcome of a study."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.studies.study import Findings


@dataclass(frozen=True, slots=True)
class Studied:
    """The outcome of a study.

    Attributes:
        name: name of the study.
        folder: folder with all files of the study.
        status: completed; failed (runs failed, see `problems`, or it could not be judged); or
            stopped (it can be resumed, and was not judged).
        findings: None if the study was stopped.
        problems: title of a run that has no result to the reason.
    """

    name: str
    folder: Path
    status: str
    findings: Findings | None
    problems: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether every run ended, every claim holds and every check passes."""
        found = self.findings
        if self.status != "completed" or found is None:
            return False
        return all(claim.holds for claim in (*found.claims, *found.checks))

    def to_json(self) -> dict[str, Any]:
        """What `muster study --json` prints; docs/commands.md explains every key."""
        found = self.findings
        return {
            "name": self.name,
            "status": self.status,
            "holds": self.holds,
            "claims": [claim.to_json() for claim in found.claims] if found else [],
            "checks": [check.to_json() for check in found.checks] if found else [],
            "problems": dict(self.problems),
        }

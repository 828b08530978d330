"""What a study came to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.emulator.studies.study import Findings


@dataclass(frozen=True, slots=True)
class Studied:
    """What a study came to.

    Attributes:
        name: what the study calls itself.
        folder: everything it left.
        status: completed; failed (runs did, see `problems`, or it could not be judged); or stopped
            (it can be resumed, and is not judged).
        findings: None when it was stopped.
        problems: title of a run that has no result to why.
    """

    name: str
    folder: Path
    status: str
    findings: Findings | None
    problems: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Every run ended, and every claim holds."""
        found = self.findings
        return self.status == "completed" and found is not None and all(
            claim.holds for claim in found.claims
        )  # fmt: skip

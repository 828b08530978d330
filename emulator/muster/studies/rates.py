"""How often each claim of a quick study holds: the file `rates.json` beside the study's module.

`python -m muster.studies.rate_measurement` writes the file.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muster.common.files import write_atomic
from muster.studies.claims import Claim, HoldRate
from muster.studies.study import Study

RATES = "rates.json"


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a study.

    Attributes:
        first, last: the seeds of the measurement.
        seeds: the number of seeds of each repetition: `first` and the following ones, then
            `first + 1` and the following ones, and so on.
        repetitions: how often the study was repeated.
        held: claim to the number of repetitions in which it held.
    """

    first: int
    last: int
    seeds: int
    repetitions: int
    held: Mapping[str, int]

    @property
    def text(self) -> str:
        """For example "100 repetitions with the seeds 1001 to 1101, 2 in each"."""
        return (
            f"{self.repetitions} repetitions with the seeds {self.first} to {self.last}, "
            f"{self.seeds} in each"
        )

    def added_to(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims with their rates; a claim that was not measured keeps none."""
        return [
            replace(claim, rate=HoldRate(self.held[claim.claim], self.repetitions))
            if claim.claim in self.held
            else claim
            for claim in claims
        ]

    @property
    def next_first(self) -> int:
        """The first seed of a repetition that was not measured yet."""
        return self.first + self.repetitions

    def joined(self, later: "Rates") -> "Rates":
        """These repetitions and those that follow them.

        Raises:
            ValueError: the later ones do not follow these, or have other claims.
        """
        if (later.first, later.seeds) != (self.next_first, self.seeds):
            raise ValueError(f"repetitions from seed {later.first} do not follow {self.text}")
        if later.held.keys() != self.held.keys():
            raise ValueError("the claims have changed; measure the rates anew")
        held = {claim: count + later.held[claim] for claim, count in self.held.items()}
        repetitions = self.repetitions + later.repetitions
        return replace(self, last=later.last, repetitions=repetitions, held=held)

    def write(self, study: Study) -> Path:
        values = {
            "first": self.first,
            "last": self.last,
            "seeds": self.seeds,
            "repetitions": self.repetitions,
            "held": dict(self.held),
        }
        path = _file(study)
        text = json.dumps(values, indent=1, ensure_ascii=False)
        write_atomic(path, f"{text}\n".encode())
        return path


def rates_of(study: Study) -> Rates | None:
    """The measured rates of a study; None if there are none."""
    path = _file(study)
    return Rates(**json.loads(path.read_bytes())) if path.exists() else None


def _file(study: Study) -> Path:
    module = sys.modules[type(study).__module__]
    assert module.__file__ is not None
    return Path(module.__file__).with_name(RATES)

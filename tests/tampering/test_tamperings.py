"""What `muster audit` finds of tamperings with a run, and what it excepts."""

from pathlib import Path
from random import Random

import pytest
from tests.tampering.playing import play
from tests.tampering.runs import KINDS, make
from tests.tampering.tamperings import tamperings

from muster.emulator.run_audit.unchecked import UNCHECKED, excused

SAMPLE = 8
"""Tamperings of each kind of run; `make tamperings` plays all."""


@pytest.mark.parametrize("kind", ["synchronous", "memory", "faults"])
def test_a_tampering_is_found_or_excepted_on_the_page(tmp_path: Path, kind: str) -> None:
    folder = make(kind, tmp_path / "run")
    chosen = Random(kind).sample(tamperings(folder), SAMPLE)
    for found in play(kind, folder, chosen):
        assert found.by != "CRASH", found.sentence
        assert found.by or found.honest or excused(found.tampering.name), found.tampering.name


def test_nothing_is_excepted_that_no_tampering_changes() -> None:
    names = [f"{act} {what}" for act in ("change", "swap") for what in ("ledger rounds.called",
             "ledger rounds.folded", "ledger answers.decision", "ledger contributions.weight",
             "ledger versions.round", "journal round_committed.folded", "summary.json rounds",
             "population.csv enrolled", "scenario.toml seed")]  # fmt: skip
    assert not any(map(excused, names))
    assert len({each.what for each in UNCHECKED}) == len(UNCHECKED)
    assert len(KINDS) >= 10

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


ONCE_SILENT = {
    "synchronous": [
        "change scenario.toml groups.devices_per_process, and what follows",
        "delete scenario.toml server.keep_updates, and what follows",
    ],
    "estimated": ["delete ledger aggregator_state"],
    "privacy": ["change ledger estimates.value", "change ledger rounds.normaliser"],
    "sums": ["change ledger transfers.round", "swap ledger transfers.round, and what follows"],
    "chunks": ["delete ledger transfers, and what follows", "swap ledger transfers.round"],
}


@pytest.mark.parametrize("kind", ONCE_SILENT)
def test_what_was_once_silent_is_found(tmp_path: Path, kind: str) -> None:
    folder = make(kind, tmp_path / "run")
    chosen = [each for each in tamperings(folder) if each.name in ONCE_SILENT[kind]]
    found = {each.tampering.name: each.by for each in play(kind, folder, chosen)}
    assert found.keys() == set(ONCE_SILENT[kind])
    assert all(found.values()), found


def test_a_setting_that_decides_nothing_leaves_the_folder_of_an_honest_run(tmp_path: Path) -> None:
    folder = make("secure", tmp_path / "run")
    named = "scenario.toml groups.device.charging.night_start_h, and what follows"
    chosen = [each for each in tamperings(folder) if each.name == f"change {named}"]
    [found] = play("secure", folder, chosen)
    assert (found.by, found.honest, found.sentence) == ("", True, "")


def test_nothing_is_excepted_that_no_tampering_changes() -> None:
    names = [f"{act} {what}" for act in ("change", "swap") for what in ("ledger rounds.called",
             "ledger rounds.folded", "ledger answers.decision", "ledger contributions.weight",
             "ledger versions.round", "journal round_committed.folded", "summary.json rounds",
             "population.csv enrolled", "scenario.toml seed")]  # fmt: skip
    assert not any(map(excused, names))
    assert len({each.what for each in UNCHECKED}) == len(UNCHECKED)
    assert len(KINDS) >= 10

"""An audit of an honest run finds nothing: whatever was killed, broke off or goes on, and whichever
muster began it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tampering.forgers import journal, opened, write_journal
from tests.tampering.histories import alarms_of
from tests.tampering.runs import KINDS, make

from muster.emulator.run_audit import audit
from muster.laboratory import trained_again
from muster.simulation.search import simulator


@pytest.mark.parametrize("kind", ["masks", "sums", "secure-grid"])
def test_a_finished_run_agrees(tmp_path: Path, kind: str) -> None:
    result = audit(make(kind, tmp_path / "run"), evaluate=True, more=trained_again.CHECKS)
    assert result.agrees, result.first


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_of_every_kind_agrees(tmp_path: Path, kind: str) -> None:
    result = audit(make(kind, tmp_path / "run"), evaluate=True, more=trained_again.CHECKS)
    assert result.agrees, result.first


def test_histories_with_kills_and_broken_connections_agree() -> None:
    with simulator() as played:
        assert [text for number in range(20) for text in alarms_of(played, number)] == []


ONCE_ALARMED = (
    709, 751, 758, 1161, 10_000_031, 10_000_073, 10_000_094, 10_000_468, 10_000_518, 10_000_524,
    10_000_836, 10_000_884, 10_001_549, 10_001_564, 10_001_755, 10_002_110,
)  # fmt: skip
"""Fleets with a history that raised an alarm: a clock set back by a second, what a power cut took
from a battery or the journal, what came twice, a device that works for a killed server's call, work
given up before it began, moments told again, parts of models, and curves of rational devices."""


def test_what_once_raised_an_alarm_agrees() -> None:
    with simulator() as played:
        assert [text for number in ONCE_ALARMED for text in alarms_of(played, number)] == []


@pytest.mark.soak
def test_many_histories_agree() -> None:
    with simulator() as played:
        assert [text for number in range(20, 300) for text in alarms_of(played, number)] == []


def _unended(folder: Path) -> None:
    """Leave what a server leaves that was killed, or that goes on."""
    with opened(folder) as ledger:
        ledger.execute("UPDATE run SET status = NULL, detail = NULL, ended_at = NULL")
    write_journal(folder, [event for event in journal(folder) if event["event"] != "ended"])
    (folder / "summary.json").unlink()
    (folder / "model.safetensors").unlink()


def _going_on(folder: Path) -> None:
    """Leave what a resumed run has while it goes on: the summary of its earlier end."""
    summary = json.loads((folder / "summary.json").read_text())
    _unended(folder)
    with opened(folder) as ledger:
        ledger.execute("UPDATE run SET incarnation = 2")
    stale = {**summary, "rounds": summary["rounds"] - 2, "status": "stopped"}
    (folder / "summary.json").write_text(json.dumps(stale))


def _without_files(folder: Path) -> None:
    for name in ("population.csv", "plan.csv", "summary.json", "ledger.sqlite-sums"):
        (folder / name).unlink(missing_ok=True)


def _without_bounds(folder: Path) -> None:
    """Leave out the keys of the configuration that came last."""
    path = folder / "setup/server.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in config.items() if not k.endswith("_bounds")}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("synchronous", tmp_path_factory.mktemp("finished") / "run")


@pytest.mark.parametrize("change", [_unended, _going_on, _without_files, _without_bounds])
def test_a_run_that_goes_on_or_was_killed_agrees(
    finished: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    change(run)
    result = audit(run)
    assert result.agrees, result.first


def test_the_ledger_of_an_earlier_muster_agrees(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with opened(run) as ledger:
        ledger.execute("PRAGMA user_version = 12")
        ledger.execute("ALTER TABLE rounds DROP COLUMN contributions")
        ledger.execute("ALTER TABLE contributions DROP COLUMN steps")
        ledger.execute("ALTER TABLE answers DROP COLUMN away_steps")
    _without_bounds(run)
    result = audit(run)
    assert result.agrees, result.first

"""`muster audit --train`: a run is played again from its life record."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.tampering.forgers import opened, repair_all, repair_inputs
from tests.tampering.runs import make

from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import AuditCheck, CheckLog
from muster.laboratory.trained_again import check_training
from muster.simulation.history import History


def checked(folder: Path) -> AuditCheck:
    evidence = Evidence.of(folder)
    with closing(evidence.ledger):
        check_training(evidence, log := CheckLog("training"))
    return log.result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("opportunistic", tmp_path_factory.mktemp("finished") / "run")


def test_all_that_training_decides_is_compared(finished: Path) -> None:
    found = checked(finished)
    assert (found.differing, found.skipped) == (0, ())
    assert found.compared > 300


def _other_learning_rate(folder: Path) -> None:
    path = folder / "scenario.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.05", "learning_rate = 0.06"))
    repair_inputs(folder)


def _other_loss(folder: Path) -> None:
    with opened(folder) as ledger:
        ledger.execute("UPDATE contributions SET loss = loss * 2 WHERE outcome = 'folded'")
    repair_all(folder)


def _other_version(folder: Path) -> None:
    with opened(folder) as ledger:
        ledger.execute("UPDATE versions SET sha256 = 'ab' || substr(sha256, 3) WHERE version = 2")
    repair_all(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_other_learning_rate, "loss in contributions, call_round 1, client quick-0000"),
        (_other_loss, "loss in contributions, call_round 1, client quick-0000"),
        (_other_version, "sha256 in versions, version 2"),
    ],
)
def test_what_agrees_everywhere_else_is_found(
    finished: Path, copy_of: Callable[[Path], Path], change: Callable[[Path], None], said: str
) -> None:
    copy = copy_of(finished)
    change(copy)
    found = checked(copy)
    assert found.differing
    assert said in {each.what.removesuffix(", trained again") for each in found.differences}


def test_a_run_that_goes_on_is_not_played_again(
    finished: Path, copy_of: Callable[[Path], Path]
) -> None:
    copy = copy_of(finished)
    with opened(copy) as ledger:
        ledger.execute("UPDATE run SET status = NULL")
    assert checked(copy).skipped == (
        "what training decides: the run has not completed all of its rounds",
    )


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


def test_an_interrupt_closes_the_history_that_is_played(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, close = list[History](), History.close

    def interrupted(history: History) -> None:
        raise KeyboardInterrupt

    def closing_it(history: History) -> None:
        closed.append(history)
        close(history)

    monkeypatch.setattr(History, "play", interrupted)
    monkeypatch.setattr(History, "close", closing_it)
    with pytest.raises(KeyboardInterrupt):
        checked(finished)
    assert len(closed) == 1

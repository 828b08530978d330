"""Audits of runs with secure sums: every change that matters is found and named."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.tampering.runs import make

from muster.client.device.memory import Memory
from muster.emulator.run_audit import audit
from muster.emulator.run_audit.auditing import describe

Tamper = Callable[[Path], object]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four devices, of which three must stay to open a sum."""
    return make("secure", tmp_path_factory.mktemp("secure") / "run")


def in_ledger(statement: str) -> Tamper:
    def tamper(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
            assert ledger.execute(statement).rowcount > 0

    return tamper


def changed_sum(folder: Path) -> None:
    path = folder / "sums/000002.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


def written_update(folder: Path) -> None:
    memory = Memory(folder / "devices/dev-0002")
    body = bytes(memory.held[-1].body)
    memory.close()
    assert len(body) == 20
    (folder / "logs/server.log").write_bytes(b"an update: " + body)


def test_an_honest_run_agrees(run: Path) -> None:
    result = audit(run)
    assert result.agrees, result.first
    compared = {check.title: check.compared for check in result.checks}
    assert compared["members of secure sums"] == 7 * (1 + 2 * 4) + 1
    assert compared["no update outside of devices"] > 10
    assert compared["versions made again from what was kept"] > 3 * 7


@pytest.mark.parametrize(
    ("tamper", "what"),
    [
        (changed_sum, "SHA-256 of version 2, made again from its sum"),
        (lambda folder: (folder / "sums/000003.bin").unlink(), "files in sums"),
        (
            in_ledger(
                "UPDATE answers SET decision = 'decline' WHERE round = 2 AND client = 'dev-0001'"
            ),
            "device dev-0001: member of the sum: expected one that has answered, found none",
        ),
        (
            in_ledger(
                "UPDATE contributions SET outcome = 'late', reason = 'sum missing' "
                "WHERE round = 2 AND client IN ('dev-0001', 'dev-0002')"
            ),
            "members of the sum: expected at least 3 of 4, found 2",
        ),
        (
            in_ledger(
                "DELETE FROM transfers WHERE round = 2 AND client = 'dev-0003' AND bytes = 64"
            ),
            "device dev-0003: bytes of its steps for the sum",
        ),
        (
            in_ledger("DELETE FROM transfers WHERE bytes <> 80"),
            "device dev-0000: whether it sent keys, shares and secrets: expected True, found False",
        ),
        (written_update, "devices of which logs/server.log has an update"),
    ],
    ids=[
        "a sum",
        "a sum that is gone",
        "no answer",
        "too few",
        "no key",
        "no pads",
        "an update in a log",
    ],
)
def test_a_change_is_found(run: Path, tmp_path: Path, tamper: Tamper, what: str) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    tamper(folder)
    differences = [str(found) for check in audit(folder).checks for found in check.differences]
    assert any(what in found for found in differences), differences


def test_without_kept_sums_the_audit_says_what_would_make_versions_again(tmp_path: Path) -> None:
    kept = make("secure", tmp_path / "run")
    scenario = kept / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("keep_sums = true", "keep_sums = false"))
    assert "does not set server.secure.keep_sums" in describe(audit(kept))

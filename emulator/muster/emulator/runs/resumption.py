"""Checks, before anything is started, that a run folder holds what its run needs to be resumed.

The server also refuses a wrong ledger, but by then devices, gateways and an evaluation have been
started for nothing.
"""

import hashlib
import re
import sqlite3
from pathlib import Path

from muster.client.training.trainer import keeps_state
from muster.common.errors import ConfigError, LedgerError
from muster.common.events import RoundCommitted
from muster.common.files import refusal_of
from muster.emulator.records.inputs import recorded_inputs, require_unchanged
from muster.emulator.records.ledger_file import damaged, read_ledger
from muster.emulator.records.manifest import Read, damaged_files, is_sealed_folder
from muster.emulator.run_folder.folder import JOURNAL, LEDGER, PARTS, afresh, read_values
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.journal_recovery import newest
from muster.server.account.page_sums import require_page_sums
from muster.server.account.round_files import model_name, state_name
from muster.server.account.tables import SCHEMA_VERSION
from muster.server.updates.memory import MEMORY

_IDENTITY = re.compile(r"[0-9a-f]{16}")


def require_resumable(folder: Path, scenario: Scenario) -> None:
    """Check that the run in a folder that this process owns can be resumed. A new folder passes.

    Args:
        scenario: that of the run.

    Raises:
        ConfigError: a file is not as the run left it, the journal has rounds that the ledger
            lacks, the scenario or code of the user's own has changed, or a device has lost state on
            which its future depends.
        LedgerError: the ledger or the newest model is damaged, or of another version of muster.
    """
    with refusal_of(f"{folder} cannot be written", afresh(folder)):
        for part in PARTS:
            (folder / part).mkdir(exist_ok=True)
        journaled = newest(folder / JOURNAL, RoundCommitted, "round")
    last_incarnation(folder)
    run = _read_ledger(folder, scenario, journaled)
    _require_identity(folder, run)
    for difference in damaged_files(folder, Read.PAGES) if is_sealed_folder(folder) else ():
        raise ConfigError(difference.sentence(folder))


def last_incarnation(folder: Path) -> int:
    """The number of the last supervisor's incarnation in the folder; 0 if there was none.

    Raises:
        ConfigError: the file with the number cannot be read.
    """
    advice = "remove the file to start the count again"
    try:
        values = read_values(folder, "setup/supervisor.json", {"incarnation": int}, advice)
        return int(values["incarnation"])
    except FileNotFoundError:
        return 0


def _require_identity(folder: Path, run: str | None) -> None:
    path = folder / "setup/run"
    with refusal_of(f"{path} cannot be read", afresh(folder)):
        found = path.read_bytes().decode(errors="replace") if path.exists() else None
    if run is not None and found != run:
        raise ConfigError(
            f"{path}: expected {run!r}, the run of {LEDGER}, found {found!r:.100}; write {run!r} "
            f"into the file if the ledger belongs to this run, or {afresh(folder)}"
        )
    if run is None and found is not None and not _IDENTITY.fullmatch(found):
        raise ConfigError(
            f"{path}: expected the run's identity, 16 hexadecimal digits, found {found!r:.100}; "
            f"remove the file, since there is no {LEDGER} yet"
        )


def _read_ledger(folder: Path, scenario: Scenario, journaled: int) -> str | None:
    """The identity of the ledger's run; None if no run has begun it."""
    path = folder / LEDGER
    if not path.exists() or not path.stat().st_size:
        _require_rounds(path, 0, journaled)
        return None
    require_page_sums(path)
    with read_ledger(path) as ledger:
        _require_schema(path, ledger)
        problems = ledger.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problems != "ok":
            raise damaged(path, problems)
        run = ledger.execute("SELECT id FROM run").fetchone()
        rounds = ledger.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0]
        _require_rounds(path, rounds, journaled)
        require_unchanged(recorded_inputs(ledger), folder)
        _require_newest(folder, ledger)
        _require_memory(folder, ledger)
        _require_states(folder, ledger, scenario)
    return run[0] if run else None


def _require_schema(path: Path, ledger: sqlite3.Connection) -> None:
    """Check that the server of today can go on with the ledger. Older ones can only be read."""
    found = ledger.execute("PRAGMA user_version").fetchone()[0]
    if found != SCHEMA_VERSION:
        raise LedgerError(
            f"{path}: expected schema version {SCHEMA_VERSION} to resume the run, found {found}; "
            f"resume it with the version of muster that began it (muster report and muster audit "
            f"read it as it is), or {afresh(path.parent)}"
        )


def _require_rounds(path: Path, rounds: int, journaled: int) -> None:
    """Check that the ledger has all rounds that the journal records."""
    if rounds < journaled:
        raise ConfigError(
            f"{path}: expected the {journaled} rounds that {JOURNAL} records, found "
            f"{rounds or 'none'}; restore the newest copy of the file, or {afresh(path.parent)}"
        )


def _require_newest(folder: Path, ledger: sqlite3.Connection) -> None:
    """Check the files of the newest version, from which the run would continue."""
    for table, name_of in (("versions", model_name), ("aggregator_state", state_name)):
        row = ledger.execute(
            f"SELECT version, sha256, body FROM {table} "
            "WHERE version = (SELECT max(version) FROM versions)"
        ).fetchone()
        if row is None or row[2] is not None:
            continue
        path = folder / "models" / name_of(row[0])
        if not path.is_file():
            raise LedgerError(
                f"{path} is missing, but the ledger names it. Restore it, or {afresh(folder)}"
            )
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != row[1]:
            raise LedgerError(
                f"{path} is not the file that was committed: its SHA-256 differs. Restore a copy "
                f"of it, or {afresh(folder)}"
            )


def _require_memory(folder: Path, ledger: sqlite3.Connection) -> None:
    """Check that the file of the last updates is there. The server checks what is in it."""
    remembered = ledger.execute("SELECT count(*) FROM memory").fetchone()[0]
    path = folder / MEMORY
    if remembered and not path.is_file():
        raise LedgerError(
            f"{path} is missing, but the ledger names it. Restore it, or {afresh(folder)}"
        )


def _require_states(folder: Path, ledger: sqlite3.Connection, scenario: Scenario) -> None:
    """Check that devices whose state depends on what they did have it. Without the newest rounds
    such a device would go on, but not as it would have done."""
    all_keep = (
        scenario.server.aggregator.control
        or scenario.task.hosted
        or any(keeps_state(each.trainer) for each in scenario.trainings)
    )
    keep = [group.name for group in scenario.groups if group.keeps_state or all_keep]
    worked = (
        'SELECT w.client, max(w.round), k."group" FROM (SELECT client, call_round AS round FROM '
        "contributions WHERE examples > 0 UNION ALL SELECT client, round FROM answers "
        "WHERE decision = 'abort') w JOIN clients k USING (client) GROUP BY w.client"
    )
    if not keep:
        return
    from muster.client.device.memory import STATE_FILE, Memory

    for client, round, group in ledger.execute(worked):
        path = folder / "devices" / client / STATE_FILE
        if group not in keep or not path.exists():
            continue
        memory = Memory(path.parent)
        newest = max((held.round for held in memory.held), default=0)
        memory.close()
        if newest < round:
            raise ConfigError(
                f"{path}: expected the state of {client} after its work of round {round}, found "
                f"{f'that of round {newest}' if newest else 'none that is whole'}. Restore a copy "
                f"of the file, or {afresh(folder)}; if you remove it, the device goes on from the "
                f"state in which it began"
            )

"""Audits of whole runs: those that are right agree, and every defect is found and named."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.oracles.checks import models_by_formula, weights_by_formula

from muster.cli.commands import main
from muster.common.config import validate
from muster.common.errors import ConfigError, LedgerError
from muster.common.sealed_lines import sealed
from muster.emulator.run_audit import audit
from muster.emulator.run_audit.auditing import describe
from muster.emulator.run_audit.result import AuditResult, Difference
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

CONSTANT: dict[str, Any] = {
    "kind": "buffered", "k": 3, "concurrency": 7, "staleness_weight": "constant",
}  # fmt: skip
POLYNOMIAL = {**CONSTANT, "staleness_weight": {"kind": "polynomial", "exponent": 0.5}}
THRESHOLD = {"kind": "opportunistic", "staleness_weight": {"kind": "threshold", "limit": 0}}
SYNCHRONOUS = {"kind": "synchronous"}


def scenario(
    rule: str | dict[str, Any], mode: dict[str, Any], keep: bool = True, **more: Any
) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "audited",
            "seed": 4,
            "clock": {"round_s": 4.0},
            "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
            "training": {"learning_rate": 0.05, "local_steps": 3, "batch_size": 8},
            "server": {
                "rounds": 10,
                "aggregator": rule,
                "mode": mode,
                "deadline_s": 6.0,
                "keep_updates": keep,
            },
            "groups": [
                {
                    "name": "fast",
                    "count": 6,
                    "device": {"examples_per_s": {"kind": "uniform", "low": 3, "high": 20}},
                    "availability": {"kind": "bernoulli", "probability": 0.8},
                },
                {"name": "slow", "count": 5, "link": {"compression": "float16"}},
            ],
            **more,
        },
        "test",
    )


@pytest.mark.parametrize(
    ("rule", "mode"),
    [
        ("fedavg", SYNCHRONOUS),
        ("fedavg", POLYNOMIAL),
        ("fedbuff", POLYNOMIAL),
        ("fedasync", POLYNOMIAL),
        ("agnostic", SYNCHRONOUS),
        ("agnostic", THRESHOLD),
        ("fedavgm", SYNCHRONOUS),
        ("fedadam", POLYNOMIAL),
        ("fedyogi", THRESHOLD),
        ("fedadagrad", SYNCHRONOUS),
        ("median", CONSTANT),
        ("trimmed-mean", SYNCHRONOUS),
        ({"kind": "bulyan", "byzantine": 1}, SYNCHRONOUS),
        ("multi-krum", POLYNOMIAL),
        ({"kind": "mifa", "start": "wait"}, SYNCHRONOUS),
        ({"kind": "mifa", "start": "zero"}, CONSTANT),
        ("fedvarp", CONSTANT),
        ("importance", SYNCHRONOUS),
        ("fednova", SYNCHRONOUS),
    ],
    ids=lambda value: value if isinstance(value, str) else value["kind"],
)
def test_every_version_is_made_again_bit_for_bit(
    tmp_path: Path, rule: str | dict[str, Any], mode: dict[str, Any]
) -> None:
    assert simulate_run(scenario(rule, mode), tmp_path / "run") == "completed"
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    versions = _ledger(tmp_path / "run", "SELECT count(*) FROM versions WHERE version > 0")
    made = next(check for check in result.checks if "made again" in check.title)
    assert made.compared > versions > 0
    assert not made.skipped
    independent = models_by_formula(tmp_path / "run")
    assert independent.compared > versions
    assert not independent.differences
    assert not weights_by_formula(tmp_path / "run").differences


@pytest.mark.parametrize("gradient", [False, True], ids=["deltas", "gradients"])
@pytest.mark.parametrize("compression", ["int8", {"kind": "top-k", "ratio": 0.5}])
def test_compressed_updates_and_gradients_are_aggregated_again(
    tmp_path: Path, compression: Any, gradient: bool
) -> None:
    training = {
        "batch_size": 8,
        "gradient": gradient,
        "learning_rate": {"kind": "inverse", "initial": 0.1, "shift": 5},
    }
    groups = [{"name": "g", "count": 4, "link": {"compression": compression}}]
    simulate_run(
        scenario("fedavg", SYNCHRONOUS, groups=groups, training=training), tmp_path / "run"
    )
    result = audit(tmp_path / "run")
    assert result.agrees, result.first


def test_updates_with_control_variates_are_aggregated_again(tmp_path: Path) -> None:
    groups = [{"name": "g", "count": 4}]
    simulate_run(scenario("scaffold", SYNCHRONOUS, groups=groups), tmp_path / "run")
    result = audit(tmp_path / "run")
    assert result.agrees, result.first
    assert next(c for c in result.checks if "made again" in c.title).compared > 10


def _ledger(folder: Path, query: str) -> int:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return int(ledger.execute(query).fetchone()[0])


WORKS: dict[str, dict[str, Any]] = {
    "goal": {"selection": {"kind": "uniform", "k": 3, "over_selection": 1.5}, "deadline_s": 6.0},
    "deadline": {"deadline_s": 4.0},
    "last word": {},
    "drop-outs": {"deadline_s": 9.0, "goal": 5},
}


def modelled(tmp_path: Path, name: str) -> Path:
    """A run whose rounds last as long as their work."""
    lossy = name == "drop-outs"
    group = {
        "name": "g",
        "count": 7,
        "device": {"examples_per_s": {"kind": "log-normal", "median": 6, "sigma": 0.6}},
        "availability": {"kind": "bernoulli", "probability": 0.6},
        "participation": {"drop_out": 0.3 if lossy else 0.0},
    }
    clock, server = {"kind": "modelled", "round_s": 4.0}, {"rounds": 20, **WORKS[name]}
    planned = scenario("fedavg", SYNCHRONOUS, clock=clock, server=server, groups=[group])
    assert simulate_run(planned, tmp_path / "run") == "completed"
    return tmp_path / "run"


@pytest.mark.parametrize("name", sorted(WORKS))
def test_rounds_last_as_long_as_their_work_by_the_answers_of_devices(
    tmp_path: Path, name: str
) -> None:
    result = audit(modelled(tmp_path, name))
    assert result.agrees, result.first
    times = next(check for check in result.checks if check.title == "scenario time")
    assert (times.compared, list(times.skipped)) == (40, [])


def test_a_round_that_lasted_too_long_is_found(tmp_path: Path) -> None:
    run = modelled(tmp_path, "goal")
    change(run, "UPDATE rounds SET next_s = next_s + 1 WHERE round = 3")
    change(run, "UPDATE rounds SET scenario_s = scenario_s + 1 WHERE round = 4")
    change(run, "UPDATE rounds SET next_s = next_s + 1 WHERE round = 4")
    found = first_of(run)
    assert (found.what, found.round) == ("scenario second at which it ends", 3)


# --- defects -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the buffered mode without a defect; its ledger has stale and late updates."""
    folder = tmp_path_factory.mktemp("right") / "run"
    simulate_run(scenario("fedavg", POLYNOMIAL), folder)
    assert audit(folder).agrees
    return folder


@pytest.fixture
def run(right: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(right, tmp_path / "run"))
    (folder / "manifest.json").unlink()  # who tampers can write it again
    return folder


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as ledger:
        for statement in statements:
            ledger.execute(statement)


def first_of(folder: Path) -> Difference:
    found = audit(folder).first
    assert found is not None
    return found


FOLDED = "(SELECT min(rowid) FROM contributions WHERE outcome = 'folded' AND round = 4)"

DECLINE = (
    f"UPDATE answers SET decision = 'decline' WHERE (round, client) = "
    f"(SELECT call_round, client FROM contributions WHERE rowid = {FOLDED})"
)
ACCEPTED = (
    "UPDATE rounds SET accepted = (SELECT count(*) FROM answers a WHERE a.round = rounds.round "
    "AND decision IN ('accept', 'abort'))"
)


@pytest.mark.parametrize(
    ("statements", "what", "round"),
    [
        (["DELETE FROM rounds WHERE round = 3"], "number of the round", 4),
        (["UPDATE rounds SET version = version + 1 WHERE round = 3"], "version after the round", 3),
        (["UPDATE rounds SET folded = 9 WHERE round = 4"], "number of folded updates", 4),
        (["UPDATE rounds SET accepted = 9 WHERE round = 4"], "number of accepted calls", 4),
        (
            [
                "DROP INDEX counted_once",
                f"INSERT INTO contributions SELECT * FROM contributions WHERE rowid = {FOLDED}",
                "UPDATE rounds SET folded = folded + 1 WHERE round = 4",
            ],
            "times that the update of a call counts",
            None,
        ),
        (
            [f"UPDATE contributions SET staleness = staleness + 1 WHERE rowid = {FOLDED}"],
            "staleness",
            4,
        ),
        (
            [f"UPDATE contributions SET base_version = base_version + 1 WHERE rowid = {FOLDED}"],
            "base version",
            4,
        ),
        (
            [
                DECLINE,
                ACCEPTED,
            ],
            "answer to the call",
            4,
        ),
        (
            [f"UPDATE contributions SET weight = weight + 1 WHERE rowid = {FOLDED}"],
            "sum of the weights",
            4,
        ),
        (["UPDATE rounds SET normaliser = normaliser / 2 WHERE round = 4"], "normaliser", 4),
        (["UPDATE rounds SET loss = loss + 1 WHERE round = 4"], "loss", 4),
        (["UPDATE versions SET sha256 = 'x' WHERE version = 4"], "made again from its updates", 4),
        (["UPDATE rounds SET bytes_up = 1 WHERE round = 5"], "bytes_up in the journal", 5),
    ],
)
def test_a_defect_of_the_ledger_is_found(
    run: Path, statements: list[str], what: str, round: int | None
) -> None:
    change(run, *statements)
    found = first_of(run)
    assert what in found.what
    assert round is None or found.round == round


def test_a_difference_names_round_device_expected_and_found(run: Path) -> None:
    change(run, f"UPDATE contributions SET staleness = 7 WHERE rowid = {FOLDED}")
    [client] = _rows(run, f"SELECT client FROM contributions WHERE rowid = {FOLDED}")
    base = _ledger(run, "SELECT base_version FROM rounds WHERE round = 4")
    trained = _ledger(run, f"SELECT base_version FROM contributions WHERE rowid = {FOLDED}")
    expected = f"round 4, device {client}: staleness: expected {base - trained}, found 7"
    assert str(first_of(run)) == expected


def _rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return [row[0] for row in ledger.execute(query)]


def _flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def _lose_client(folder: Path) -> None:
    shutil.copyfile(folder / "updates/000003.safetensors", folder / "updates/000004.safetensors")


def _tell_twice(folder: Path) -> None:
    lines = (folder / "journal.jsonl").read_text().splitlines()
    told = next(line for line in lines if '"round_committed"' in line)
    (folder / "journal.jsonl").write_text("\n".join([*lines, told, ""]))


def _tell_nothing(folder: Path) -> None:
    lines = (folder / "journal.jsonl").read_text().splitlines()
    left = [line for line in lines if '"round_committed"' not in line]
    (folder / "journal.jsonl").write_text("\n".join([*left, ""]))


def _count_wrongly(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    summary["updates_folded"] += 1
    (folder / "summary.json").write_text(json.dumps(summary))


def _tell_faults(folder: Path, *states: str) -> None:
    """Add events of a fault that somebody has injected by hand to the journal."""
    of_line = '"at":2e9,"role":"supervisor","incarnation":1,"fault":"cut","targets":[],"round":2'
    with (folder / "journal.jsonl").open("ab") as file:
        for state in ("injected", *states):
            number = "" if state == "injected" else ',"number":1'
            line = f'{{"event":"fault_{state}",{of_line}{number}}}'
            file.write(sealed(line.encode()) + b"\n")


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda run: _flip(run / "updates/000004.safetensors"), "checksum of the kept update"),
        (lambda run: (run / "updates/000004.safetensors").unlink(), "updates/000004.safetensors"),
        (_lose_client, "clients in updates/000004.safetensors"),
        (lambda run: _flip(run / "model.safetensors"), "SHA-256 of model.safetensors"),
        (_tell_twice, "the journal has the event round_committed"),
        (_tell_nothing, "the journal has the event round_committed"),
        (_count_wrongly, "updates_folded in summary.json"),
        (
            lambda run: _tell_faults(run, "healed"),
            "events of the fault 'cut' before fault_healed",
        ),
        (
            lambda run: _tell_faults(run, "applied", "healed", "verified"),
            "events of the fault 'cut' before fault_verified",
        ),
        (
            lambda run: _tell_faults(run, "applied", "applied"),
            "events of the fault 'cut' before fault_applied",
        ),
    ],
    ids=[
        "kept",
        "lost",
        "other",
        "model",
        "twice",
        "never",
        "summary",
        "fault-heals-first",
        "fault-unobserved",
        "fault-twice",
    ],
)
def test_a_defect_of_a_file_is_found(run: Path, spoil: Callable[[Path], object], what: str) -> None:
    spoil(run)
    assert what in first_of(run).what


@pytest.mark.parametrize(
    "states",
    [
        ("planned", "applied", "observed", "healed", "verified"),
        # The ledger may have an update that was sent twice only after the fault is over.
        ("planned", "applied", "healed", "observed", "verified"),
        ("planned", "applied", "healed"),
    ],
)
def test_the_states_of_a_fault_may_come_in_these_orders(run: Path, states: tuple[str, ...]) -> None:
    _tell_faults(run, *states)
    [journal] = [check for check in audit(run).checks if check.title == "the journal"]
    assert not journal.differing, journal.differences


def test_a_remembered_update_that_changed_is_found(tmp_path: Path) -> None:
    simulate_run(scenario("fedvarp", SYNCHRONOUS, keep=False), tmp_path / "run")
    assert audit(tmp_path / "run").agrees
    _flip(tmp_path / "run/memory.bin", 0)
    _flip(tmp_path / "run/memory.bin", 4096)
    found = first_of(tmp_path / "run")
    assert (found.what, found.device) == ("checksum of its update in memory.bin", "fast-0000")


def test_what_cannot_be_checked_is_told_with_the_reason(tmp_path: Path) -> None:
    simulate_run(scenario("q-fedavg", SYNCHRONOUS, keep=False), tmp_path / "run")
    result = audit(tmp_path / "run")
    assert result.agrees
    text = describe(result)
    assert "not checked: the scenario does not set server.keep_updates" in text
    expected = "the weights by the rule of the run: they follow from the updates, which are kept"
    assert f"not checked: {expected}" in text


def test_a_folder_without_a_run_is_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ConfigError, match="not a run folder"):
        audit(tmp_path)
    (run / "ledger.sqlite").write_bytes(b"no database at all")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        audit(run)


def test_the_command_exits_with_1_and_names_the_first_difference(run: Path) -> None:
    right = CliRunner().invoke(main, ["audit", str(run)])
    assert (right.exit_code, "DIFFER" in right.output) == (0, False)
    change(run, "UPDATE rounds SET folded = 9 WHERE round = 4")
    wrong = CliRunner().invoke(main, ["audit", str(run)])
    assert wrong.exit_code == 1
    assert "the first difference: round 4: number of folded updates: expected 3, found 9" in (
        wrong.output
    )
    found = json.loads(CliRunner().invoke(main, ["audit", "--json", str(run)]).output)
    assert found["agrees"] is False


def test_an_audit_writes_nothing(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result: AuditResult = audit(run)
    assert result.agrees
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

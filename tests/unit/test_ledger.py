import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.common.errors import LedgerError
from muster.common.exchange import Reason
from muster.common.tensors import schema_of
from muster.server.account.ledger import Ledger
from muster.server.account.ledger_reader import ReportRow
from muster.server.account.rows import (
    AnswerRow,
    ContributionRow,
    RoundRow,
    TransferRow,
)
from muster.server.account.run_rows import (
    DeviceEvaluationRow,
    EvaluationRow,
    GroupEvaluationRow,
    MemberRow,
    SharedWorkRow,
    StoredVector,
)
from muster.server.account.store import Store
from muster.server.account.tables import SCHEMA_VERSION
from muster.server.account.transaction import EndedWork, PendingTransaction
from muster.server.program import members_of
from muster.server.settings.population import PopulationMember
from muster.server.settings.process import ServerProcess
from muster.server.settings.server import ServerSettings

ROW = RoundRow(
    1,
    0,
    1,
    "aggregated",
    2,
    2,
    1,
    5.0,
    5.0,
    5.0,
    1.0,
    0.0,
    60.0,
    None,
    None,
    40,
    60,
    10.0,
    11.0,
    1.0,
)
ANSWER = AnswerRow(1, "a", "accept", None, None, None, None, 0.0, 40, 10.5)
CONTRIBUTION = ContributionRow(
    1, "a", 1, 1, 0, 0, 5.0, 5, 1.0, 40, 40, 0, 0.1, 0.2, 0.3, "folded", None, 10.9
)
MODEL = StoredVector("ab", 3, b"abc")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    members = [MemberRow("a", "g", 0, 5, True, None), MemberRow("b", "g", 1, 6, True, None)]
    ledger.begin("run", members, at=1.0, population=2, moments={})
    ledger.enter_initial(MODEL, None)
    return ledger


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as reader:
        return reader.execute(query).fetchall()


def test_a_commit_is_durable_in_full_synchronous_mode(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, **options))
        return opened[-1]

    Ledger(tmp_path / "ledger.sqlite", connect)
    [db] = opened
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_round_is_committed_with_everything_that_belongs_to_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    transfer = TransferRow(1, "a", 1, "up", 40, 2.0, 0.5, 0.25, 1280.0, "complete")
    notes = PendingTransaction([CONTRIBUTION], [transfer], [("a", "{}", 2.0, "{}", 1.0)])
    ledger.commit(ROW, [ANSWER], notes, MODEL, MODEL)
    ledger.close()
    again = Ledger(tmp_path / "ledger.sqlite")
    assert again.begin("run", [], at=2.0, population=2, moments={}) == 2
    assert (again.newest_round(), again.newest_version()) == (1, 1)
    assert again.model(1) == MODEL
    assert again.state(1) == MODEL
    assert again.state(0) is None
    assert rows(tmp_path, "SELECT client, outcome FROM contributions") == [("a", "folded")]
    assert rows(tmp_path, "SELECT direction, rate_bps FROM transfers") == [("up", 1280.0)]
    assert rows(tmp_path, "SELECT sessions FROM clients ORDER BY position") == [(1,), (0,)]


def test_what_devices_told_last_is_that_of_their_newest_round(ledger: Ledger) -> None:
    told = ANSWER._replace(state="{}", x='{"load":1}', x_age_s=0.0)
    newer = [
        told._replace(round=2, decision="absent", x='{"load":2}', x_age_s=7.0, at=20.0),
        told._replace(round=2, client="b", x_age_s=None),  # of which nothing is known
    ]
    ledger.commit(ROW, [told], PendingTransaction(sessions=[("a", "{}", 2.0, '{"age": 3}', 1.0)]))
    ledger.commit(ROW._replace(round=2), newer, PendingTransaction())
    ledger.commit(
        ROW._replace(round=3), [told._replace(round=3, x_age_s=None)], PendingTransaction()
    )
    assert list(ledger.last_reports()) == [ReportRow("a", "{}", '{"load":2}', 7.0, 20.0)]
    assert ledger.covariates() == [("a", '{"age": 3}')]


def test_a_transaction_that_fails_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    twice = PendingTransaction([CONTRIBUTION, CONTRIBUTION])
    with pytest.raises(sqlite3.IntegrityError):
        ledger.commit(ROW, [ANSWER], twice, MODEL)
    assert ledger.newest_round() == 0
    assert rows(tmp_path, "SELECT * FROM answers") == []


def test_an_update_cannot_be_folded_twice_in_a_round(ledger: Ledger) -> None:
    ledger.commit(ROW, [], PendingTransaction([CONTRIBUTION]), MODEL)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        ledger.note(PendingTransaction([CONTRIBUTION._replace(attempt=2)]))
    ledger.note(PendingTransaction([CONTRIBUTION._replace(outcome="duplicate")]))


def _ends_its_assignment(outcome: str, reason: Reason) -> bool:
    """Whether nothing more is expected of a device after this row of its update."""
    if outcome == "refused":
        return reason not in (
            # The right body may still come,
            Reason.CHECKSUM, Reason.OTHER_BODY,
            # or the key was not that of its call.
            Reason.NOT_CALLED, Reason.WRONG_ROUND, Reason.UNKNOWN_CLIENT,
        )  # fmt: skip
    # Late for a closed round: the run was ending, and makes the round again when it is resumed.
    return not (outcome == "duplicate" or (outcome, reason) == ("late", Reason.ROUND_CLOSED))


@pytest.mark.parametrize("outcome", ["folded", "late", "dropped", "refused", "duplicate"])
def test_an_assignment_is_open_until_its_update_has_come_to_an_end(
    ledger: Ledger, outcome: str
) -> None:
    for number, reason in enumerate(Reason, start=1):
        row = CONTRIBUTION._replace(
            round=number, call_round=number, outcome=outcome, reason=reason.value
        )
        ledger.note(PendingTransaction([row]))  # when an earlier incarnation ended
        ledger.commit(
            ROW._replace(round=number), [ANSWER._replace(round=number)], PendingTransaction()
        )
    found = {row.round for row in ledger.open_assignments()}
    ends = [_ends_its_assignment(outcome, reason) for reason in Reason]
    assert found == {number for number, end in enumerate(ends, start=1) if not end}


def test_an_evaluation_stands_beside_its_round(ledger: Ledger, tmp_path: Path) -> None:
    ledger.commit(ROW, [], PendingTransaction(), MODEL)
    ledger.evaluated(EvaluationRow(1, 1, 0.5, None, {"distance": 2.0}, 0.1, 3.0))
    assert ledger.evaluations() == {1: {"distance": 2.0, "loss": 0.5}}
    assert rows(tmp_path, "SELECT loss, accuracy FROM rounds") == [(0.5, None)]


def test_groups_and_devices_are_entered_with_their_evaluation_or_not_at_all(
    ledger: Ledger, tmp_path: Path
) -> None:
    groups = [GroupEvaluationRow(0, 0, "g", 11, 0.5, 0.75, {})]
    devices = [
        DeviceEvaluationRow(0, "a", 5, float("nan"), None, {}),
        DeviceEvaluationRow(0, "b", 6, 2, 1, {"f1": 0.5}),
    ]
    evaluation = EvaluationRow(0, 0, 0.5, 0.75, {}, 0.1, 3.0, groups, devices)
    unwritable = DeviceEvaluationRow(0, "c", set(), 2, 1, {})  # type: ignore[arg-type]
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.evaluated(evaluation._replace(devices=[*devices, unwritable]))
    assert ledger.evaluations() == {}
    assert rows(tmp_path, "SELECT * FROM group_evaluations") == []
    ledger.evaluated(evaluation)
    assert rows(tmp_path, "SELECT * FROM group_evaluations") == [(0, 0, "g", 11, 0.5, 0.75, "{}")]
    assert rows(tmp_path, "SELECT * FROM device_evaluations") == [
        (0, "a", 5, None, None, "{}"),
        (0, "b", 6, 2.0, 1.0, '{"f1": 0.5}'),
    ]


def test_forgotten_versions_keep_their_hash(ledger: Ledger) -> None:
    ledger.commit(ROW, [], PendingTransaction(), MODEL, forget=[0])
    assert ledger.kept() == [(1, 1)]
    assert ledger.model(0) == StoredVector("ab", 3, None)


def test_work_over_shared_links_has_its_duration_when_it_has_ended(
    ledger: Ledger, tmp_path: Path
) -> None:
    going, other = SharedWorkRow("a", 1, 0.5, 3, 6.25, 1e3 / 3), ANSWER._replace(client="b")
    first, answers = ROW._replace(scenario_s=5.0), [ANSWER._replace(modelled_s=4.0), other]
    ledger.commit(first, answers, PendingTransaction(work=[going]), MODEL)
    assert ledger.shared_work() == [going]
    assert ledger.busy_until_s() == [("b", 5.0)], "a is busy until its work ends"
    ended, end = going._replace(stage=5, at_s=11.5), EndedWork(11.5, 1, "a")
    second = ROW._replace(round=2, base_version=1, version=2, scenario_s=8.0)
    ledger.commit(second, [], PendingTransaction(work=[ended], ended=[end]), MODEL)
    assert ledger.shared_work() == [ended]
    assert rows(tmp_path, "SELECT client, modelled_s FROM answers") == [("a", 6.5), ("b", 0.0)]
    third = ROW._replace(round=3, base_version=2, version=3, scenario_s=20.0)
    gave_up = ANSWER._replace(round=3, decision="abort", modelled_s=1.5)
    ledger.commit(third, [gave_up], PendingTransaction(), MODEL)
    assert ledger.busy_until_s() == [("a", 21.5), ("b", 5.0)]


def test_the_newest_answer_says_for_how_long_a_device_is_away(ledger: Ledger) -> None:
    away = ANSWER._replace(decision="decline", away_steps=7)
    ledger.commit(ROW, [away], PendingTransaction(), MODEL)
    second = ROW._replace(round=2, base_version=1, version=2, scenario_s=600.0)
    ledger.commit(second, [away._replace(round=2, away_steps=2)], PendingTransaction(), MODEL)
    assert ledger.declined() == [("a", 600.0, 2)]


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is not a database, but long enough to be looked at" * 20)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger, or is damaged"):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened or written .*inodes"),
        (sqlite3.SQLITE_FULL, "cannot be opened or written .*inodes"),
        (sqlite3.SQLITE_IOERR_WRITE, "cannot be opened or written .*inodes"),
        (sqlite3.SQLITE_IOERR_SHORT_READ, "is not a ledger, or is damaged"),
        (sqlite3.SQLITE_CORRUPT, "is not a ledger, or is damaged"),
        (sqlite3.SQLITE_NOTADB, "is not a ledger, or is damaged"),
    ],
)
def test_the_reason_is_the_system_or_the_file(code: int, why: str, tmp_path: Path) -> None:
    class Refused(sqlite3.Connection):
        def execute(self, *_: object) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("what SQLite says")
            error.sqlite_errorcode = code
            raise error

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(path, factory=Refused, **options)

    with pytest.raises(LedgerError, match=why):
        Ledger(tmp_path / "ledger.sqlite", connect)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LedgerError, match=f"ledger schema 99; this muster writes {SCHEMA_VERSION}"):
        Ledger(path)


def test_a_ledger_of_another_run_is_refused(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="of run run, not of other"):
        ledger.begin("other", [], at=1.0, population=2, moments={})


SCHEMA = schema_of({"w": (3,)})
LARGE = schema_of({"w": (200, 200)})


def test_large_vectors_are_files_and_small_ones_rows(ledger: Ledger, tmp_path: Path) -> None:
    for schema, in_row in ((SCHEMA, True), (LARGE, False)):
        store = Store(tmp_path / f"models-{in_row}", ledger, schema)
        model = np.arange(schema.parameters, dtype=np.float32)
        stored = store.put_model(1, model)
        assert (stored.body is not None) == in_row
        ledger.commit(
            ROW._replace(version=5 + in_row, round=5 + in_row), [], PendingTransaction(), stored
        )
        if not in_row:
            (tmp_path / "models-False/000001.safetensors").rename(
                tmp_path / "models-False/000005.safetensors"
            )
        np.testing.assert_array_equal(store.get_model(5 + in_row), model)


def test_an_altered_or_missing_file_is_refused_and_an_orphan_removed(
    ledger: Ledger, tmp_path: Path
) -> None:
    store = Store(tmp_path / "models", ledger, LARGE)
    model = np.ones(LARGE.parameters, np.float32)
    ledger.commit(ROW, [], PendingTransaction(), store.put_model(1, model))
    store.put_model(2, model)
    (tmp_path / "models/000003.safetensors.tmp").write_bytes(b"half")
    store.clean([0, 1])
    path = tmp_path / "models/000001.safetensors"
    assert list((tmp_path / "models").iterdir()) == [path]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="SHA-256 differs"):
        store.get_model(1)
    path.unlink()
    with pytest.raises(LedgerError, match="missing; the ledger names it"):
        store.get_model(1)


def test_an_aggregators_state_comes_back(ledger: Ledger, tmp_path: Path) -> None:
    store = Store(tmp_path / "models", ledger, SCHEMA)
    state = {"sum": np.array([1.5, 2]), "iterates": np.array(7)}
    stored = store.put_state(1, state)
    ledger.commit(ROW, [], PendingTransaction(), MODEL, stored)
    back = store.get_state(1)
    assert {name: (a.dtype, a.shape, a.tolist()) for name, a in back.items()} == {
        name: (a.dtype, a.shape, a.tolist()) for name, a in state.items()
    }
    assert store.get_state(0) == {}


@pytest.mark.parametrize(("information", "known"), [("full", ["a", "b"]), ("limited", ["a"])])
def test_the_books_know_of_the_population_what_the_scenario_says(
    information: str, known: list[str]
) -> None:
    config = ServerProcess(
        run="r",
        seed=1,
        clock="rounds",
        server=ServerSettings.model_validate({"rounds": 1, "information": information}),
        task="{}",
        training="{}",
        population=[
            PopulationMember(client="a", group="g", examples=3, z={"os=15": 1.0, "age": 2.0}),
            PopulationMember(client="b", group="g", examples=4, enrolled=False, z={"age": 1.0}),
        ],
        schema_=[],
    )
    members = list(members_of(config))
    assert [member.client for member in members] == known
    assert members[0] == MemberRow("a", "g", 0, 3, True, '{"age": 2.0, "os=15": 1.0}')
    assert [member.enrolled for member in members] == [True, False][: len(known)]

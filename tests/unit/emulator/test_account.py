"""Reading the account of a run that may still be going on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.common.errors import ConfigError, LedgerError
from muster.emulator.records.account import Account
from muster.emulator.records.inputs import inputs_in
from muster.emulator.records.ledger_file import open_ledger
from muster.emulator.records.summary import outline
from muster.server.account.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder


def test_every_table_has_the_columns_of_the_ledger_also_when_it_is_empty(run: RunFolder) -> None:
    with Account(run.commit()) as account, sqlite3.connect(run.path / "ledger.sqlite") as ledger:
        for name in (
            "rounds", "answers", "contributions", "clients", "evaluations", "group_evaluations",
            "device_evaluations", "transfers", "faults",
        ):  # fmt: skip
            columns = [row[1] for row in ledger.execute(f"PRAGMA table_info({name})")]
            assert list(getattr(account, name).columns) == columns
            assert getattr(account, name).empty
        assert account.round_totals.empty
        assert account.client_totals.empty
        assert account.enrolled == 0
        for table in (account.z, account.x, account.estimates, account.warnings):
            assert table.empty
    ledger.close()


def test_an_account_sees_one_moment_while_the_server_goes_on_writing(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as earlier:
        run.round({"a": "folded"})
        run.commit()
        assert len(earlier.rounds) == len(earlier.contributions) == 1
        with Account(run.path) as later:
            assert len(later.rounds) == len(later.contributions) == 2


def test_the_server_can_write_and_reading_changes_nothing(run: RunFolder) -> None:
    with closing(open_ledger(run.commit() / "ledger.sqlite")) as ledger:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            ledger.execute("DELETE FROM run")
        run.clients("a")
        run.commit()


@pytest.mark.parametrize("damage", ["x'c9'", "x'6563c3'"])
def test_a_text_that_is_not_utf8_is_damage_of_the_ledger(run: RunFolder, damage: str) -> None:
    ledger = run.commit() / "ledger.sqlite"
    with sqlite3.connect(ledger) as writing:
        writing.execute(f"INSERT INTO inputs VALUES ('scenario', '', CAST({damage} AS TEXT))")
    writing.close()
    with pytest.raises(LedgerError, match="expected a readable ledger"):
        inputs_in(run.path)


def test_reading_a_finished_run_leaves_its_folder_as_it_was(drawn: Callable[..., Path]) -> None:
    folder = drawn({"phones": 3}, rounds=2)
    before = sorted(folder.iterdir())
    with Account(folder) as account:
        assert len(account.rounds) == 2
        assert sorted(folder.iterdir()) == before
    assert sorted(folder.iterdir()) == before


def test_tables_that_were_read_stay_usable_after_closing(run: RunFolder) -> None:
    run.clients("a")
    with Account(run.commit()) as account:
        assert len(account.clients) == 1
    assert len(account.clients) == 1


def test_what_was_not_measured_is_missing_and_numbers_stay_numbers(run: RunFolder) -> None:
    run.clients("a", "b")
    run.clients("c", enrolled=False)
    run.round({"a": "folded", "b": "late: deadline"})
    with Account(run.commit()) as account:
        assert account.contributions["weight"].to_list()[0] == 100.0
        assert account.contributions["weight"].isna().to_list() == [False, True]
        assert account.contributions["reason"].isna().to_list() == [True, False]
        assert account.rounds["loss"].dtype == "float64"
        assert account.rounds["called"].dtype == "int64"
        assert account.enrolled == 2


def test_totals_of_a_round_say_how_many_bytes_were_for_nothing(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "late"}, sent={"b": {"bytes_up": 300}})
    run.round({})
    with Account(run.commit()) as account:
        columns = ["bytes_up", "bytes_down", "bytes_wasted"]
        assert account.round_totals[columns].to_numpy().tolist() == [[1300, 2000, 300], [0, 0, 0]]


def test_the_totals_are_of_all_that_travelled(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "late"})
    run.ledger.execute("UPDATE run SET bytes_up = 30, bytes_down = 5")
    with Account(run.commit()) as account:
        assert account.traffic_totals == (2030, 2005)
        told = outline(account)
        assert (told["bytes_up"], told["bytes_down"]) == (2030, 2005)


def test_a_client_has_the_bytes_that_travelled_in_chunks_or_inside_other_messages(
    run: RunFolder,
) -> None:
    run.clients("chunks", "inside")
    run.round({"chunks": "late: deadline", "inside": "folded"})
    run.transfer("chunks", "down", 0.0, 0.0, 1.0, bytes=700)
    run.transfer("chunks", "up", 0.0, 0.0, 1.0, bytes=300, ending="broken")
    run.transfer("chunks", "up", 0.0, 0.0, 1.0, bytes=50, ending="cut off")
    with Account(run.commit()) as account:
        totals = account.client_totals.set_index("client")[["bytes_up", "bytes_down"]]
    assert list(totals.loc["chunks"]) == [350, 700]
    assert list(totals.loc["inside"]) == [1000, 1000]


def test_totals_of_a_client_count_what_became_of_its_updates(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, sent={"a": {"train_s": 1.0}})
    run.round({"a": "refused: norm"}, sent={"a": {"train_s": 3.0}})
    with Account(run.commit()) as account:
        columns = ["client", "folded", "refused", "late", "bytes_up", "train_s"]
        first, second = account.client_totals[columns].to_numpy().tolist()
    assert first == ["a", 1, 1, 0, 2000, 2.0]
    assert second[:5] == ["b", 0, 0, 0, 0]


def test_every_call_has_one_fate_whatever_was_sent_for_it(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    run.clients("d", "e", "f", "g", group="tablets")
    run.round(
        {"a": "folded", "b": "late: deadline", "c": "refused: norm"},
        declined={"d": "battery"}, aborted={"e": "drop-out"}, absent=["f"], unanswered=1,
        batteries={"a": 0.5, "f": 0.25},
    )  # fmt: skip
    run.contribute("a", "duplicate")
    run.contribute("a", "refused: other body", attempt=2)
    run.contribute("c", "duplicate")
    run.contribute("d", "refused: not called")
    run.contribute("f", "refused: not called")
    run.contribute("g", "late: round closed")  # its answer came after the commit
    run.contribute("b", "refused: not called", round=2)  # never committed
    with Account(run.commit()) as account:
        calls = account.calls
    assert calls.drop(columns="battery").fillna("").to_numpy().tolist() == [
        [1, "a", "phones", "folded", ""],
        [1, "b", "phones", "late", "deadline"],
        [1, "c", "phones", "refused", "norm"],
        [1, "d", "tablets", "declined", "battery"],
        [1, "e", "tablets", "gave up", "drop-out"],
        [1, "f", "tablets", "absent", ""],
        [1, "g", "tablets", "late", "round closed"],
    ]
    assert calls["battery"].dropna().to_list() == [0.5, 0.25]


def test_a_device_that_accepted_and_sent_nothing_has_a_fate_too(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "dropped"})
    run.ledger.execute("DELETE FROM contributions WHERE client = 'b'")
    run.contribute("b", "refused: not called", round=1, base_version=7)
    with Account(run.commit()) as account:
        assert account.calls["fate"].to_list() == ["folded", "refused"]
    run.ledger.execute("DELETE FROM contributions WHERE client = 'b'")
    with Account(run.commit()) as account:
        assert account.calls["fate"].to_list() == ["folded", "no update"]


def test_events_are_picked_from_the_journal_and_torn_lines_passed_over(run: RunFolder) -> None:
    run.journal({"event": "died", "process": "a", "status": -9}, {"event": "answered"})
    with open(run.path / "journal.jsonl", "a") as journal:
        journal.write('{"event": "died", "pro')
    with Account(run.commit()) as account:
        assert [event["process"] for event in account.events("died", "restarted")] == ["a"]


def test_a_folder_without_scenario_or_journal_can_be_read(run: RunFolder) -> None:
    (run.path / "scenario.toml").unlink()
    with Account(run.commit()) as account:
        assert account.scenario == {}
        assert account.name == "run"
        assert list(account.events("died")) == []


def test_a_scenario_that_is_no_toml_is_named(run: RunFolder) -> None:
    run.scenario("name = ")
    with (
        Account(run.commit()) as account,
        pytest.raises(ConfigError, match=r"scenario\.toml: expected the TOML"),
    ):
        account.scenario  # noqa: B018


def test_a_folder_without_a_ledger_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="runs/latest is the newest"):
        Account(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _overwrite(path: Path, start: int, body: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(body)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), f"expected schema version {SCHEMA_VERSION}, found 0"),
        (lambda path: path.write_bytes(b"no ledger at all" * 99), "file is not a database"),
        (lambda path: _overwrite(path, 4096, b"\xff" * 4096), "recover"),
    ],
    ids=["empty", "not a database", "a damaged page"],
)
def test_a_damaged_ledger_is_refused_with_what_to_do(
    drawn: Callable[..., Path], damage: Callable[[Path], object], message: str
) -> None:
    folder = drawn({"phones": 3}, rounds=2)
    damage(folder / "ledger.sqlite")
    with pytest.raises(LedgerError, match=message), Account(folder) as account:
        account.contributions  # noqa: B018


def test_the_ledger_of_another_schema_is_refused(run: RunFolder) -> None:
    run.ledger.execute("PRAGMA user_version = 1")
    with pytest.raises(LedgerError, match=f"expected schema version {SCHEMA_VERSION}, found 1"):
        Account(run.commit())


def test_a_ledger_of_the_version_before_is_read_with_the_columns_of_today(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.ledger.execute("ALTER TABLE rounds DROP COLUMN next_s")
    for column in ("rounds DROP COLUMN scenario_s", "contributions DROP COLUMN call_round"):
        run.ledger.execute("DROP INDEX IF EXISTS counted_once")
        run.ledger.execute(f"ALTER TABLE {column}")
    run.ledger.execute("PRAGMA user_version = 6")
    with Account(run.commit()) as account:
        assert account.contributions["call_round"].tolist() == [1]
        assert account.rounds["scenario_s"].isna().all()


@pytest.mark.parametrize("version", [9, 10])
def test_the_ledger_of_a_run_without_rational_devices_is_read_although_it_is_older(
    run: RunFolder, version: int
) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    run.ledger.execute("DROP TABLE valuations")
    run.ledger.execute(f"PRAGMA user_version = {version}")
    with Account(run.commit()) as account:
        assert account.contributions["client"].tolist() == ["a"]
        assert account.valuations.empty


def test_a_run_that_has_not_begun_is_refused(run: RunFolder) -> None:
    run.ledger.execute("DELETE FROM run")
    with pytest.raises(LedgerError, match="not begun"):
        Account(run.commit())


def test_covariates_have_a_column_each_and_are_missing_where_a_device_has_none(
    run: RunFolder,
) -> None:
    run.clients("a", z='{"age": 2, "os=14": 1}')
    run.clients("b", z='{"plan": 0.5}')
    run.clients("c")  # limited information: nobody was told
    run.round({"a": "folded"}, declined={"b": "busy", "c": "busy"},
              x={"a": {"round": 3.0}, "b": {"load": 0.25, "round": 4.0}})  # fmt: skip
    run.population(9, {"age": 1.5})
    with Account(run.commit()) as account:
        z, x = account.z, account.x
        assert account.moments == {"age": 1.5}
    assert z.index.to_list() == ["a", "b"]
    assert z.fillna(-1.0).to_dict("list") == {
        "age": [2.0, -1.0], "os=14": [1.0, -1.0], "plan": [-1.0, 0.5]
    }  # fmt: skip
    assert x.fillna(-1.0).to_dict("index") == {
        (1, "a"): {"round": 3.0, "load": -1.0},
        (1, "b"): {"round": 4.0, "load": 0.25},
    }


def test_many_answers_are_read_a_part_at_a_time(run: RunFolder) -> None:
    run.clients("a", "b", "c")
    for load in (0.0, 1.0, 2.0):
        run.round({}, declined=dict.fromkeys("abc", "busy"), x={c: {"load": load} for c in "abc"})
    with Account(run.commit(), answers_at_once=2) as account:
        assert account.x["load"].to_list() == [0.0] * 3 + [1.0] * 3 + [2.0] * 3


def test_estimates_are_numbers_and_words_by_name_and_key(run: RunFolder) -> None:
    run.round({})
    run.estimate(floor=0.01, kind="logistic")
    run.round({})
    run.estimate(calibration={"method": "entropy", "residual": 1e-9, "of": None, "at": [1, 2]})
    with Account(run.commit()) as account:
        estimates = account.estimates
    numbers = estimates.dropna(subset="value").drop(columns="word").to_numpy().tolist()
    words = estimates.dropna(subset="word").drop(columns="value").to_numpy().tolist()
    assert numbers == [[1, "floor", "", 0.01], [2, "calibration", "residual", 1e-9]]
    assert words == [
        [1, "kind", "", "logistic"],
        [2, "calibration", "method", "entropy"],
        [2, "calibration", "at", "[1, 2]"],
    ]
    assert len(estimates) == 6


def test_warnings_are_those_of_the_journal(run: RunFolder) -> None:
    with Account(run.commit()) as account:
        assert account.warnings.empty
    run.journal({"event": "warned", "round": 3, "by": "importance", "warning": "a is rare"},
                {"event": "died", "process": "warned"})  # fmt: skip
    with Account(run.path) as account:
        assert account.warnings[["round", "by", "warning"]].to_numpy().tolist() == [
            [3, "importance", "a is rare"]
        ]

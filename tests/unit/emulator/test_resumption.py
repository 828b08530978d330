"""Going on with a run: what its folder lacks or holds wrongly is found before anything starts."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.client.device.memory import Memory, RoundRecord, State
from muster.common.causes import OWN_CODE_FAILED
from muster.common.credentials import OPERATOR, SECRETS, credentials_path
from muster.common.testing import made_credentials
from muster.emulator.records.inputs import changes, inputs_of
from muster.emulator.records.ledger_file import open_ledger
from muster.emulator.run_audit.checks.inputs import check_inputs
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_folder.folder import resume_advice
from muster.emulator.run_folder.journal_tail import Tail
from muster.emulator.runs import running
from muster.server.account.tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

SCENARIO = """
name = "plain"
[task]
name = "linear"
[server]
rounds = 9
[[groups]]
name = "a"
count = 2
"""


class Started(Exception):
    """The run would begin now."""


Resume = Callable[[], Result]


@pytest.fixture
def resume(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Resume:
    """Goes on with a run of three rounds, up to the moment at which processes would be started."""

    def started(*_: object) -> None:
        raise Started

    monkeypatch.setattr(running, "Supervisor", started)
    run.scenario(SCENARIO)
    run.clients("a-0000", "a-0001")
    for number in (1, 2, 3):
        run.round({"a-0000": "folded"})
        run.add("versions", version=number, round=number, sha256="", bytes=3, body=b"abc")
    run.ledger.execute("UPDATE versions SET sha256 = ?", (hashlib.sha256(b"abc").hexdigest(),))
    (run.path / "journal.jsonl").write_text(
        "".join(
            f'{{"event":"round_committed","at":{number}.0,"round":{number}}}\n'
            for number in (1, 2, 3)
        )
    )
    for part in ("setup", "logs", "devices", "models"):
        (run.path / part).mkdir()
    (run.path / "setup/run").write_text("run-1")
    (run.path / "setup/supervisor.json").write_text('{"incarnation": 1}')
    run.commit()
    run.close()
    return lambda: CliRunner().invoke(main, ["run", "--quiet", "--resume", str(run.path)])


def assert_refused(result: Result, *said: str) -> None:
    """Exit status 2 and the words on standard error; nothing was started."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith("error: ")
    for words in said:
        assert words in result.stderr


def assert_started(result: Result) -> None:
    assert isinstance(result.exception, Started), (result.output, result.exception)


def test_a_run_folder_as_a_run_left_it_is_gone_on_with(resume: Resume) -> None:
    assert_started(resume())


# --- setup/ --------------------------------------------------------------------------------------


def test_a_run_folder_without_setup_is_refused(run: RunFolder, resume: Resume) -> None:
    shutil.rmtree(run.path / "setup")
    assert_refused(resume(), "setup", "expected", "from the beginning", "scenario.toml --out")
    assert not (run.path / "setup").exists()


def test_a_file_in_the_place_of_setup_is_refused(run: RunFolder, resume: Resume) -> None:
    shutil.rmtree(run.path / "setup")
    (run.path / "setup").write_text("garbage")
    assert_refused(resume(), "setup", "Not a directory")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"run-2", b"run-1\n"])
def test_an_identity_other_than_the_ledgers_is_refused(
    run: RunFolder, resume: Resume, content: bytes
) -> None:
    (run.path / "setup/run").write_bytes(content)
    assert_refused(resume(), "setup/run", "expected 'run-1', the run of ledger.sqlite")


def test_a_missing_identity_is_refused_with_what_it_has_to_be(
    run: RunFolder, resume: Resume
) -> None:
    (run.path / "setup/run").unlink()
    assert_refused(resume(), "setup/run", "expected 'run-1', the run of ledger.sqlite")


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"{", b"[" * 5000, b"[]", b"{}", b'{"incarnation": "x"}']
)
def test_garbage_in_a_file_of_setup_is_refused(
    run: RunFolder, resume: Resume, content: bytes
) -> None:
    (run.path / "setup/supervisor.json").write_bytes(content)
    assert_refused(resume(), "setup/supervisor.json", "expected", "incarnation")


# --- the ledger ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [slice(0, 16), slice(0, 100), slice(100, 8192)])
def test_a_damaged_ledger_is_refused(run: RunFolder, resume: Resume, damage: slice) -> None:
    ledger = run.path / "ledger.sqlite"
    content = bytearray(ledger.read_bytes())
    content[damage] = b"\xa5" * len(content[damage])
    ledger.write_bytes(content)
    assert_refused(resume(), "ledger.sqlite", "expected a readable ledger")


def test_a_ledger_that_is_cut_short_is_refused(run: RunFolder, resume: Resume) -> None:
    ledger = run.path / "ledger.sqlite"
    ledger.write_bytes(ledger.read_bytes()[:-4096])
    assert_refused(resume(), "ledger.sqlite", "expected a readable ledger")


def test_what_is_no_ledger_is_refused(run: RunFolder, resume: Resume) -> None:
    (run.path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    assert_refused(resume(), "ledger.sqlite", "expected a readable ledger")


def test_another_programs_database_is_refused(run: RunFolder, resume: Resume) -> None:
    (run.path / "ledger.sqlite").unlink()
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("CREATE TABLE mine (number)")
        db.commit()
    assert_refused(resume(), "ledger.sqlite", "expected schema version")


def test_a_ledger_of_another_schema_is_refused(run: RunFolder, resume: Resume) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 1")
    assert_refused(resume(), "expected schema version", "found 1")


def test_a_ledger_that_can_only_be_read_is_refused(run: RunFolder, resume: Resume) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("PRAGMA user_version = 9")
    open_ledger(run.path / "ledger.sqlite").close()
    assert_refused(resume(), f"expected schema version {SCHEMA_VERSION} to resume", "found 9")


def test_another_runs_ledger_is_refused(run: RunFolder, resume: Resume) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("UPDATE run SET id = 'another'")
        db.commit()
    assert_refused(resume(), "setup/run", "expected 'another', the run of ledger.sqlite")


def test_a_deleted_ledger_is_refused_where_the_journal_has_rounds(
    run: RunFolder, resume: Resume
) -> None:
    (run.path / "ledger.sqlite").unlink()
    assert_refused(
        resume(),
        "ledger.sqlite: expected the 3 rounds that journal.jsonl records, found none",
        "copy",
        "scenario.toml --out",
    )
    assert not (run.path / "ledger.sqlite").exists()


def test_an_emptied_ledger_is_refused_where_the_journal_has_rounds(
    run: RunFolder, resume: Resume
) -> None:
    (run.path / "ledger.sqlite").write_bytes(b"")
    assert_refused(resume(), "expected the 3 rounds that journal.jsonl records, found none")


def test_an_older_copy_of_the_ledger_is_refused(run: RunFolder, resume: Resume) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("DELETE FROM rounds WHERE round > 1")
        db.commit()
    assert_refused(resume(), "expected the 3 rounds that journal.jsonl records, found 1")


def test_a_ledger_with_more_rounds_than_the_journal_is_gone_on_with(
    run: RunFolder, resume: Resume
) -> None:
    (run.path / "journal.jsonl").write_text('{"event":"round_committed","round":1}\n{"ev')
    assert_started(resume())


@pytest.mark.parametrize("content", [None, b""])
def test_a_run_that_failed_before_its_first_round_may_have_no_ledger(
    run: RunFolder, resume: Resume, content: bytes | None
) -> None:
    (run.path / "journal.jsonl").write_text('{"event": "started", "process": "nursery"}\n')
    (run.path / "ledger.sqlite").unlink()
    (run.path / "setup/run").write_text("0123456789abcdef")
    if content is not None:
        (run.path / "ledger.sqlite").write_bytes(content)
    assert_started(resume())


def test_a_journal_with_lines_that_are_none_hides_no_round(run: RunFolder, resume: Resume) -> None:
    (run.path / "ledger.sqlite").unlink()
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write('{"event":"round_committed","round":null}\n')
        journal.write('{"event":"round_committed"}\n["event":"round_committed"')
    assert_refused(resume(), "expected the 3 rounds that journal.jsonl records")


# --- the model -----------------------------------------------------------------------------------


def test_a_model_file_that_the_ledger_names_and_is_missing_is_refused(
    run: RunFolder, resume: Resume
) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("UPDATE versions SET body = NULL WHERE version = 3")
        db.commit()
    assert_refused(resume(), "000003.safetensors is missing")
    (run.path / "models/000003.safetensors").write_bytes(b"abd")
    assert_refused(resume(), "000003.safetensors is not the file that was committed")
    (run.path / "models/000003.safetensors").write_bytes(b"abc")
    assert_started(resume())


# --- the other folders ---------------------------------------------------------------------------


def test_folders_that_a_run_fills_are_made_again(run: RunFolder, resume: Resume) -> None:
    for part in ("logs", "models"):
        (run.path / part).rmdir()
    assert_started(resume())
    assert (run.path / "logs").is_dir()


def test_a_file_in_the_place_of_a_folder_is_refused(run: RunFolder, resume: Resume) -> None:
    (run.path / "logs").rmdir()
    (run.path / "logs").write_text("")
    assert_refused(resume(), "cannot be written", "logs")


# --- a running server ----------------------------------------------------------------------------

GARBAGE = [b"", b"\xff", b"{", b"[" * 5000, b"[]", b"{}", b'{"host": 1, "port": "x"}']


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
@pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_where_a_server_says_how_to_reach_it_is_refused(
    run: RunFolder, command: str, content: bytes
) -> None:
    (run.path / "address.json").write_bytes(content)
    result = CliRunner().invoke(main, [command, str(run.path)])
    assert_refused(result, "address.json: expected", "--resume")


def credentials_of_the_operator(run: RunFolder, content: bytes, mode: int) -> None:
    """Make a run folder in which the operator's credentials are this file."""
    path = credentials_path(run.path / SECRETS, OPERATOR)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.chmod(mode)
    (run.path / "address.json").write_text('{"host": "127.0.0.1", "port": 9}')


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
@pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_in_place_of_the_operators_credentials_is_refused(
    run: RunFolder, command: str, content: bytes
) -> None:
    credentials_of_the_operator(run, content, 0o400)
    result = CliRunner().invoke(main, [command, str(run.path)])
    assert_refused(result, "operator/credentials.json: expected credentials", "start the run again")


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
def test_credentials_that_others_may_read_are_refused(run: RunFolder, command: str) -> None:
    content = made_credentials("operator").to_json().encode()
    credentials_of_the_operator(run, content, 0o440)
    result = CliRunner().invoke(main, [command, str(run.path)])
    assert_refused(result, "only its owner may read, found mode 0440", "chmod 0400")


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
def test_a_run_whose_credentials_are_removed_has_ended(run: RunFolder, command: str) -> None:
    (run.path / "address.json").write_text('{"host": "127.0.0.1", "port": 9}')
    result = CliRunner().invoke(main, [command, str(run.path)])
    assert result.exit_code == 1
    assert "no server of this run answers at 127.0.0.1:9; it has ended" in result.stderr


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
def test_a_run_folder_without_setup_has_no_server(run: RunFolder, command: str) -> None:
    result = CliRunner().invoke(main, [command, str(run.path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no server has been started in ")


# --- the report ----------------------------------------------------------------------------------


def test_a_report_needs_no_setup(run: RunFolder) -> None:
    run.round({})
    result = CliRunner().invoke(main, ["report", str(run.commit())])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["figures", "report.html"])
def test_a_report_that_cannot_be_written_is_refused(run: RunFolder, name: str) -> None:
    run.round({})
    if name == "figures":
        (run.path / name).write_text("")
    else:
        (run.path / name).mkdir()
    result = CliRunner().invoke(main, ["report", str(run.commit())])
    assert_refused(result, "cannot be written", name)


@pytest.mark.parametrize("text", ["[" * 3000, f"a = {'[' * 3000}", "a = ", "a = 0x" + "f" * 5000])
def test_a_scenario_that_cannot_be_read_is_refused_by_a_report(run: RunFolder, text: str) -> None:
    run.round({})
    run.scenario(text)
    assert_refused(CliRunner().invoke(main, ["report", str(run.commit())]), "scenario.toml")


# --- the journal ---------------------------------------------------------------------------------


def test_a_line_of_the_journal_that_is_none_is_passed_over(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    tail = Tail(journal)
    journal.write_bytes(b'{"event": "a"}\n{"eve{"event": "b"}\n[1]\n{"event": "c"}\n{"ev')
    assert [event["event"] for event in tail.new()] == ["a", "c"]


def test_plans_of_several_runs_are_refused_when_they_are_garbage(tmp_path: Path) -> None:
    for command in ("compare", "study"):
        for content in (b"", b"\xff", b"[" * 5000, b"[]", json.dumps({"runs": [1]}).encode()):
            (tmp_path / "plan.json").write_bytes(content)
            result = CliRunner().invoke(main, [command, "--resume", str(tmp_path)])
            assert_refused(result, "plan.json")


def test_a_missing_file_of_the_updates_that_the_ledger_names_is_refused(
    run: RunFolder, resume: Resume
) -> None:
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db:
        db.execute("INSERT INTO memory VALUES ('a-0000', 3, 1, '')")
        db.commit()
    assert_refused(resume(), "memory.bin is missing, but the ledger names it")
    (run.path / "memory.bin").write_bytes(b"abc")
    assert_started(resume())


def device_state(run: RunFolder, *rounds: int) -> Path:
    """The state file of a-0000 after its work of these rounds."""
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE clients SET \"group\" = 'a'")
    folder = run.path / "devices/a-0000"
    memory = Memory(folder)
    for round in rounds:
        before, after = State(round - 1), State(round, b"", (1.0, 0.5))
        memory.hold(RoundRecord(round, b"m" * 16, before, after))
    memory.close()
    return folder / "state.bin"


@pytest.mark.parametrize(
    ("rounds", "found"),
    [((1, 2), "found that of round 2"), ((), "found none that is whole")],
)
def test_a_device_whose_state_is_older_than_the_ledger_is_refused(
    resume: Resume, run: RunFolder, rounds: tuple[int, ...], found: str
) -> None:
    run.scenario(f'{SCENARIO}device = {{ profile = "phone" }}\n')
    path = device_state(run, *rounds)
    path.touch()
    refused = resume()
    assert refused.exit_code == 2
    assert f"{path}: expected the state of a-0000 after its work of round 3" in refused.output
    assert found in refused.output


def test_a_device_whose_state_is_that_of_the_ledger_goes_on(resume: Resume, run: RunFolder) -> None:
    run.scenario(f'{SCENARIO}device = {{ profile = "phone" }}\n')
    device_state(run, 2, 3)
    assert isinstance(resume().exception, Started)


def test_devices_whose_past_decides_nothing_need_no_state(resume: Resume, run: RunFolder) -> None:
    device_state(run, 1).write_bytes(b"torn")
    assert isinstance(resume().exception, Started)


# --- what the run began with ---------------------------------------------------------------------

BOUND = """name = "plain"
modules = "{place}/mine"

[task]
name = "linear"
data.directory = "/data"

[training]
learning_rate = 0.1

[server]
rounds = 9
stall_s = 60.0
port = 4000
aggregator = "rule_r:Rule"

[[groups]]
name = "a"
count = 2
"""

RULE = "from muster.server.aggregators import FedAvg\nimport part_r\nclass Rule(FedAvg): ...\n"


@pytest.fixture
def bound(run: RunFolder, resume: Resume) -> Path:
    """The run folder and its code, with the inputs that its ledger has recorded."""
    mine = run.path / "mine"
    mine.mkdir()
    (mine / "rule_r.py").write_text(RULE)
    (mine / "part_r.py").write_text("A = 1\n")
    run.scenario(BOUND.replace("{place}", str(run.path)))
    with closing(sqlite3.connect(run.path / "ledger.sqlite")) as db, db:
        db.executemany("INSERT INTO inputs VALUES (?, ?, ?)", inputs_of(run.path))
    return run.path


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("scenario.toml", "learning_rate = 0.1", "learning_rate = 0.3"),
        ("scenario.toml", "learning_rate = 0.1", "learning_rate = 0.5"),
        ("scenario.toml", "count = 2", "count = 3"),
        ("scenario.toml", "rounds = 9", "rounds = 8"),
        ("scenario.toml", '[[groups]]\n', '[[expect]]\nthat = "folded >= 1"\n[[groups]]\n'),
        ("mine/rule_r.py", "class", "A = 1\nclass"),
        ("mine/part_r.py", "A = 1", "A = 2"),
        ("mine/rule_r.py", "import part_r", ""),
    ],
)  # fmt: skip
def test_a_run_goes_on_only_with_what_it_began_with(
    name: str, before: str, after: str, bound: Path, resume: Resume
) -> None:
    assert_started(resume())
    file = bound / name
    file.write_text(file.read_text().replace(before, after))
    what = name.removeprefix("mine/")
    first = "part_r.py" if "import" in before else what  # it is not imported any more
    assert_refused(resume(), first, "has changed: expected SHA-256", "found")
    with closing(Evidence.of(bound).ledger) as ledger:
        log = CheckLog("inputs")
        check_inputs(Evidence(bound, ledger), log)
    differing = [difference.what for difference in log.result.differences]
    assert f"SHA-256 of {what}" in differing


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"/data"', '"/moved/data"'),
        ("60.0", "600.0"),
        ("4000", "4001"),
        ("[server]", "[launch]\nrestarts = 5\n\n[server]"),
        ("[server]", "# a comment\n[server]"),
        ("/mine", "/../mine"),
    ],
)
def test_what_changes_no_result_may_change(
    before: str, after: str, bound: Path, resume: Resume
) -> None:
    shutil.copytree(bound / "mine", bound.parent / "mine")
    path = bound / "scenario.toml"
    path.write_text(path.read_text().replace(before, after))
    assert_started(resume())


def test_one_flipped_bit_of_the_scenario_is_noticed(bound: Path, resume: Resume) -> None:
    """Every bit that leaves other settings. The reader refuses what is no TOML."""
    path = bound / "scenario.toml"
    text = path.read_bytes()
    begin, end = text.index(b"[training]"), text.index(b"stall_s")
    recorded = inputs_of(bound)
    for place in range(8 * begin, 8 * end):
        flipped = bytearray(text)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            same = tomllib.loads(text.decode()) == tomllib.loads(flipped.decode())
        except ValueError:
            continue
        assert same == (not list(changes(recorded, bound))), flipped.decode()


def test_a_run_with_own_code_can_be_begun_anew_if_the_cause_lies_in_that_code(
    run: RunFolder,
) -> None:
    assert resume_advice(run.path, "a reason").splitlines()[1:] == [
        f"Resume the run with: muster run --resume {run.path}"
    ]
    run.scenario("modules = '/where/it/is'")
    anew = f"run it again from the beginning: muster run {run.path}/scenario.toml --out OTHER"
    advice = resume_advice(run.path, "a reason").splitlines()
    assert advice[2:] == [f"If you change code of your own, {anew}"]
    assert resume_advice(run.path, f"{OWN_CODE_FAILED}: x") == f"\nMend it, and {anew}"

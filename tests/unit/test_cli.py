"""The command line without a run: what it refuses, what it says, and with which exit status."""

import json
import math
import os
import pickle
import re
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.common.installation import install_command
from muster.emulator import verification
from muster.emulator.faults.catalogue import INJECTED
from muster.emulator.links.settings import LinkSettings
from muster.emulator.run_folder.folder import COMPOSE, own
from muster.emulator.verification.result import Tolerances, Verification, compared

PLAIN = """
name = "plain"
[task]
name = "linear"
[server]
rounds = 3
[[groups]]
name = "a"
count = 2
"""

Muster = Callable[..., Result]


@pytest.fixture
def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Muster:
    """Calls a command in an empty folder that holds plain.toml."""
    monkeypatch.chdir(tmp_path)
    Path("plain.toml").write_text(PLAIN)
    return lambda *arguments: CliRunner().invoke(main, arguments)


def assert_refused(result: Result, *said: str) -> None:
    """Exit status 2, the words on standard error, and nothing made."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for words in said:
        assert words in result.stderr
    assert not Path("runs").exists()


# --- run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "advice"),
    [((), "stopped\n"), (("--backend", "ray"), "stopped --backend ray\n")],
)
def test_a_run_that_stopped_is_resumed_on_its_backend(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], advice: str
) -> None:
    done = SimpleNamespace(folder=Path("stopped"), summary={}, status="stopped", began=True)
    monkeypatch.setattr("muster.emulator.runs.running.run", lambda *_, **__: done)
    result = muster("run", "plain.toml", "--json", *flags)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"Resume it with: muster run --resume {advice}")


def test_run_needs_a_scenario_or_a_run_to_resume(muster: Muster) -> None:
    assert_refused(muster("run"), "error: expected a scenario, or --resume DIR", "muster init")


def test_run_takes_no_scenario_beside_resume(muster: Muster) -> None:
    refused = muster("run", "plain.toml", "--resume", "there")
    assert_refused(refused, "error: expected a scenario or --resume, found both")


@pytest.mark.parametrize("flag", [("--set", "seed=1"), ("--out", "there"), ("--data", "there")])
def test_resume_changes_no_settings(muster: Muster, flag: tuple[str, str]) -> None:
    Path("run").mkdir()
    Path("run/scenario.toml").write_text(PLAIN)
    refused = muster("run", "--resume", "run", *flag)
    assert_refused(refused, "--resume continues the run as it began", flag[0])
    assert [path.name for path in Path("run").iterdir()] == ["scenario.toml"]


def test_resume_needs_a_run_folder(muster: Muster) -> None:
    Path("empty").mkdir()
    assert_refused(muster("run", "--resume", "empty"), "error: empty is not a run folder")
    assert_refused(muster("run", "--resume", "nowhere"), "error: nowhere is not a run folder")
    assert list(Path("empty").iterdir()) == []


def test_out_must_not_hold_anything_and_is_left_as_it_was(muster: Muster) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    refused = muster("run", "plain.toml", "--out", "out")
    assert_refused(refused, "error: --out out exists and is not an empty folder", "--resume out")
    assert [path.name for path in Path("out").iterdir()] == ["mine.txt"]
    assert Path("out/mine.txt").read_text() == "mine"


def test_out_must_not_be_a_file(muster: Muster) -> None:
    Path("out").write_text("mine")
    assert_refused(muster("run", "plain.toml", "--out", "out"), "not an empty folder")
    assert Path("out").read_text() == "mine"


def test_both_mistakes_of_a_scenario_are_told(muster: Muster) -> None:
    Path("wrong.toml").write_text(PLAIN.replace("rounds = 3", "ronds = 3"))
    refused = muster("run", "wrong.toml", "--out", "out")
    assert_refused(
        refused,
        "error: wrong.toml: 2 mistakes",
        "server.ronds: unknown key; did you mean 'rounds'?",
        "server.rounds: required, but missing",
    )
    assert not Path("out").exists()


def test_a_missing_scenario_is_told_by_its_name(muster: Muster) -> None:
    assert_refused(muster("run", "none.toml"), "error: there is no scenario none.toml")


def test_a_setting_that_is_wrong_is_told_without_a_traceback(muster: Muster) -> None:
    assert_refused(muster("run", "plain.toml", "--set", "seed"), "error: --set seed: expected")
    assert_refused(muster("run", "plain.toml", "--set", ".=1"), "error: --set .=1: expected")


def test_without_data_files_nothing_starts_and_they_are_named_with_the_setting(
    muster: Muster,
) -> None:
    Path("mnist.toml").write_text(PLAIN.replace("linear", "mnist"))
    Path("data").mkdir()
    for arguments in ((), ("--data", "data"), ("--data", "nowhere")):
        assert_refused(
            muster("run", "mnist.toml", *arguments),
            "task.data.directory",
            "MNIST/raw/train-images-idx3-ubyte.gz",
            "MNIST/raw/t10k-labels-idx1-ubyte.gz",
            "--data",
            "MUSTER_DATA",
        )


def test_an_unknown_flag_is_refused(muster: Muster) -> None:
    assert_refused(muster("run", "plain.toml", "--backwards"), "No such option", "--backwards")


# --- up and down ---------------------------------------------------------------------------------


def test_up_needs_a_scenario_or_a_run_to_resume(muster: Muster) -> None:
    assert_refused(muster("up"), "error: expected a scenario, or --resume DIR")
    assert_refused(muster("up", "plain.toml", "--resume", "there"), "error: expected a scenario")
    refused = muster("up", "--resume", "there", "--set", "seed=1")
    assert_refused(refused, "--resume continues the run as it began")


def test_without_a_daemon_nothing_comes_up(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker-compose").write_text("#!/bin/sh\n")
    (tmp_path / "docker-compose").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    assert_refused(muster("up", "plain.toml"), "error: no Docker daemon answers", "DOCKER_HOST")


def test_without_a_compose_command_nothing_comes_up(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_refused(muster("up", "plain.toml"), "docker-compose", "muster run --backend docker")


def test_down_needs_a_run_folder(muster: Muster) -> None:
    assert_refused(muster("down", "nowhere"), "error: nowhere is not a run folder")


# --- compare -------------------------------------------------------------------------------------


def test_compare_needs_a_scenario_and_something_to_vary(muster: Muster) -> None:
    assert_refused(muster("compare"), "error: expected a scenario, or --resume DIR")
    assert_refused(muster("compare", "plain.toml"), "error: expected something to vary", "--vary")


@pytest.mark.parametrize("flag", [("--vary", "seed=1"), ("--set", "seed=1"), ("--out", "there")])
def test_a_comparison_goes_on_as_it_began(muster: Muster, flag: tuple[str, str]) -> None:
    assert_refused(muster("compare", "--resume", "there", *flag), "the comparison as it began")


def test_compare_names_the_mistakes_of_all_variants_and_makes_nothing(muster: Muster) -> None:
    refused = muster("compare", "plain.toml", "--vary", "server.rounds=0,3,x", "--out", "out")
    assert_refused(
        refused,
        "error: 2 of 3 variants cannot be run",
        "rounds=0: plain.toml: 1 mistake",
        "rounds=x: plain.toml: 1 mistake",
    )
    assert not Path("out").exists()


def test_compare_resumes_only_a_comparison(muster: Muster) -> None:
    assert_refused(muster("compare", "--resume", "nowhere"), "error: nowhere is not a comparison")


# --- plan ----------------------------------------------------------------------------------------

TWO_OF_FOUR = PLAIN.replace("count = 2", 'count = 4\navailability = { kind = "k-of-n", k = 2 }')
NOBODY = """
[[groups]]
name = "b"
count = 3
enrollment = { kind = "bernoulli", probability = 0 }
"""


def test_a_plan_says_who_takes_part_when_and_leaves_tables_and_a_figure(muster: Muster) -> None:
    Path("two.toml").write_text(TWO_OF_FOUR)
    result = muster("plan", "two.toml")
    assert result.exit_code == 0, result.output
    title, _, head, row, *rest = result.stdout.splitlines()
    assert title == "plain: 3 rounds over 2 min 00 s of scenario time, exactly what a run does"
    told = dict(zip(head.split(), row.replace(" %", "%").split(), strict=True))
    assert told == {
        "group": "a", "devices": "4", "enrolled": "4", "available": "50.0%", "called": "100.0%",
        "accept": "50.0%", "deliver": "50.0%", "cohort": "2.0", "least": "2", "most": "2",
    }  # fmt: skip
    assert "  a  offline 50.0 %" in rest
    participation = next(line for line in rest if line.startswith("  participation of a"))
    assert participation.split()[3:] == ["0.5", "0.5", "0.5", "0.5", "100.0", "%"]
    assert not [line for line in rest if line.startswith("warning")]
    assert rest[-1].endswith("plans/plain/plan.png, plan.csv, population.csv")
    assert {path.name for path in Path("plans/plain").iterdir()} == {
        "plan.png", "plan.csv", "population.csv"
    }  # fmt: skip
    assert not Path("runs").exists()


def test_a_plan_warns_of_those_who_never_can_and_of_rounds_without_an_update(
    muster: Muster,
) -> None:
    changed = TWO_OF_FOUR.replace("count = 4", "count = 4\nparticipation.willing = 0.0")
    Path("never.toml").write_text(changed + NOBODY)
    result = muster("plan", "never.toml", "--set", "server.rounds=5", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "warning: 4 of 4 enrolled a (a-0000, a-0001, a-0002 …) can practically" in result.stdout
    assert "warning: no device of b is enrolled" in result.stdout
    assert "warning: 5 of 5 rounds have fewer than 1 updates" in result.stdout
    rows = Path("out/plan.csv").read_text().splitlines()
    assert rows[0].split(",")[:4] == ["round", "scenario_s", "group", "enrolled"]
    assert rows[-1].split(",")[:7] == ["5", "240", "b", "0", "0", "0", "0"]
    assert len(Path("out/population.csv").read_text().splitlines()) == 1 + 4 + 3


def test_plan_refuses_a_wrong_scenario_and_makes_nothing(muster: Muster) -> None:
    Path("wrong.toml").write_text(TWO_OF_FOUR.replace("k = 2", "k = 5"))
    assert_refused(muster("plan", "wrong.toml"), "groups[0].availability: k = 5 of a group of 4")
    assert_refused(muster("plan", "none.toml"), "error: there is no scenario none.toml")
    assert not Path("plans").exists()


def test_a_plan_as_json_has_the_sums_of_its_rounds(muster: Muster) -> None:
    Path("two.toml").write_text(TWO_OF_FOUR + NOBODY)
    result = muster("plan", "two.toml", "--json", "--out", "out")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert [values[key] for key in ("folder", "name", "exact", "rounds", "versions")] == [
        "out", "plain", True, 3, None
    ]  # fmt: skip
    assert values["groups"][0] == {
        "group": "a", "devices": 4, "enrolled": 4, "available": 6.0, "called": 12.0,
        "accepted": 6.0, "delivered": 6.0, "in_time": 6.0, "late": 0.0,
        "reasons": {"offline": 6.0},
    }  # fmt: skip
    assert values["warnings"] == ["no device of b is enrolled"]


# --- devices -------------------------------------------------------------------------------------


def test_an_imported_list_of_devices_is_what_a_scenario_uses(muster: Muster) -> None:
    Path("ranking.csv").write_text("name,score,share\nold,1,3\nnew,9,1\n")
    result = muster("devices", "import", "ranking.csv", "devices.csv", "--speed", "10")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "2 devices of a list with the column 'score' in devices.csv",
        "  examples_per_s  median 10, from 2 to 18",
        "  weight          median 2, from 1 to 3",
        "Note: speed was taken to grow in proportion to the score, which is an assumption.",
        "In a group, every device draws a row by its weight with",
        '  table = { path = "devices.csv", rows = "drawn" }',
    ]
    setting = 'groups[0].table={path="devices.csv",rows="drawn"}'
    assert muster("plan", "plain.toml", "--set", setting).exit_code == 0


def test_devices_are_written_as_csv_alone_and_read_in_known_formats(muster: Muster) -> None:
    Path("ranking.csv").write_text("name,score\nold,1\n")
    assert_refused(
        muster("devices", "import", "ranking.csv", "out.txt"), "out.txt: expected a name"
    )
    assert_refused(muster("devices", "import", "none", "out.csv"), "none cannot be read: No such")
    given = "devices", "import", "ranking.csv", "out.csv", "--format", "flush"
    assert_refused(muster(*given), "--format: expected one of fedscale, flash, bouquetfl, scores")


# --- trace ---------------------------------------------------------------------------------------


def test_an_imported_trace_is_what_a_scenario_replays(muster: Muster) -> None:
    # Steps of 60 s: the one is there in the first of three, the other in the last two.
    clients = {
        1: {"active": [0], "inactive": [50], "finish_time": 180},
        2: {"active": [60], "inactive": [180], "finish_time": 180},
    }
    Path("behave").write_bytes(pickle.dumps(clients))
    result = muster("trace", "import", "behave", "there.csv")
    assert result.exit_code == 0, result.output
    assert result.stdout == "2 traces in there.csv\n"
    setting = 'groups[0].availability={kind="trace",file="there.csv"}'
    result = muster("plan", "plain.toml", "--set", setting, "--out", "out")
    assert result.exit_code == 0, result.output
    available = [row.split(",")[5] for row in Path("out/plan.csv").read_text().splitlines()]
    assert available == ["available", "1", "1", "1"]
    rows = Path("out/population.csv").read_text().splitlines()
    assert [row.split(",")[0::4] for row in rows[1:]] == [
        ["a-0000", str(1 / 3)],
        ["a-0001", str(2 / 3)],
    ]


def test_of_a_pickle_that_names_a_function_nothing_is_run(muster: Muster) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, ("made",)

    Path("behave").write_bytes(pickle.dumps({1: Evil()}))
    assert_refused(muster("trace", "import", "behave", "out.csv"), "expected a pickle of", "mkdir")
    assert not Path("made").exists()
    assert not Path("out.csv").exists()


def test_traces_are_written_as_csv_or_json_alone(muster: Muster) -> None:
    found = {1: {"active": [0], "inactive": [50], "finish_time": 180}}
    Path("behave").write_bytes(pickle.dumps(found))
    assert_refused(muster("trace", "import", "behave", "out.txt"), "out.txt is neither .csv nor")
    assert_refused(muster("trace", "import", "none", "out.csv"), "none cannot be read")


def test_a_recorded_link_is_imported_and_told(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "bus.log").write_text("0 1\n10 4\n30 0\n40 2\n")
    told = "mean 1.5 Mbit/s, from 0 to 4 Mbit/s in a second, 40 s, longest gap 20 s"
    result = muster("trace", "import", "--link", "bus.log", "bus.npy")
    assert result.exit_code == 0, result.output
    assert "seconds, Mbit/s (Pensieve), rates in Mbit/s" in result.output
    assert told in result.output
    assert 'trace = "bus.npy"' in result.output
    assert told in muster("trace", "import", "--link", "bus.npy").output


def test_profiles_of_links_become_settings(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "connectivity.ini").write_text(
        '[3G]\nlabel="Mobile 3G"\nbwIn=1600000\nbwOut=768000\nlatency=300\nplr=1\n'
    )
    (tmp_path / "tc.sh").write_text(
        "tc qdisc add dev eth0 root netem delay 50ms 10ms loss 1% rate 5mbit\n"
        "tc qdisc add dev ifb0 root netem delay 50ms rate 20mbit\n"
    )
    (tmp_path / "ge.sh").write_text(
        "tc qdisc add dev eth0 root netem delay 40ms 6ms distribution pareto "
        "loss gemodel 1% 50% limit 85 rate 1mbit\n"
    )
    (tmp_path / "toxics.json").write_text(
        '{"web": {"name": "web", "toxics": [{"type": "bandwidth", "attributes": {"rate": 125}}, '
        '{"type": "latency", "attributes": {"latency": 100}}, {"type": "timeout", '
        '"attributes": {}}]}}'
    )
    (tmp_path / "devtools.json").write_text(
        '[{"title": "Slow", "download": 50000, "upload": -1, "latency": 2000}]'
    )
    (tmp_path / "nlc.plist").write_text(
        '<plist version="1.0"><dict><key>Lossy</key><dict><key>DownlinkBandwidth</key>'
        "<integer>2</integer><key>DownlinkBandwidthUnit</key><integer>1</integer>"
        "<key>DownlinkDelay</key><integer>100</integer><key>UplinkDelay</key><integer>50</integer>"
        "<key>UplinkPacketLossRatio</key><real>10</real></dict></dict></plist>"
    )
    for name, lines in {
        "connectivity.ini": ('down = "1.6 Mbit/s"', 'up = "768 kbit/s"', 'rtt = "300 ms"',
                             "loss = 0.01", "# Mobile 3G"),
        "tc.sh": ('down = "20 Mbit/s"', 'up = "5 Mbit/s"', 'rtt = "100 ms"',
                  'jitter = "5774 us"', 'jitter_distribution = "uniform"'),
        "ge.sh": ('delay_up = "40 ms"', 'jitter = "6.928 ms"', 'jitter_distribution = "pareto"',
                  'loss = 0.0196078', 'loss_burst = 2', 'queue_up = "122.5 kB"',
                  'queueing = "fifo"'),
        "toxics.json": ('down = "1 Mbit/s"', 'delay_down = "100 ms"',
                        "left out, see faults: timeout"),
        "devtools.json": ('down = "400 kbit/s"', 'rtt = "2 s"', "# Slow"),
        "nlc.plist": ('down = "2 Mbit/s"', 'delay_down = "100 ms"', "loss_down = 0",
                      "loss_up = 0.1", "# Lossy"),
    }.items():  # fmt: skip
        result = muster("trace", "import", "--link", name)
        assert result.exit_code == 0, result.output
        assert set(lines) <= set(result.output.splitlines()) | {lines[-1]}, result.output
        assert lines[-1] in result.output
        settings = result.output[result.output.index("[groups.link]") + len("[groups.link]") :]
        LinkSettings.model_validate(tomllib.loads(settings))


def test_links_that_cannot_be_imported_are_refused(muster: Muster, tmp_path: Path) -> None:
    def refused(text: str, *says: str) -> None:
        (tmp_path / "link").write_text(text)
        assert_refused(muster("trace", "import", "--link", "link"), *says)

    refused("0 1\n1 fast\n", "line 2: expected a rate in Mbit/s, found 'fast'")
    refused("0 0.0001\n1 0.0001\n", "carries 100 bit/s in the mean, expected at least 1000")
    refused("[3G]\nbwIn=-4\nbwOut=1\n", "[3G]: expected a number of at least 0 as bwin")
    refused("tc qdisc add dev eth0 root netem delay 5parsec\n", "line 1: expected a unit")
    refused("hello\n", "line 1: expected a column of time")
    result = muster("trace", "import", "--link", "--format", "smoke", "link")
    assert_refused(result, "--format: expected one of mahimahi")
    assert_refused(muster("trace", "import", "--link", "link", "out.csv"), "ends in .npy")
    assert_refused(muster("trace", "import", "link"), "OUT: expected a .csv or .json file")


def test_traces_are_exported_from_a_run_folder_that_has_an_account(muster: Muster) -> None:
    Path("run").mkdir()
    assert_refused(muster("trace", "export", "run", "out.csv"), "error: run is not a run folder")
    Path("run/scenario.toml").write_text(PLAIN)
    assert_refused(muster("trace", "export", "run", "out.csv"), "ledger.sqlite")
    assert not Path("out.csv").exists()


# --- doctor --------------------------------------------------------------------------------------


def test_doctor_looks_at_every_part_of_the_machine(muster: Muster) -> None:
    result = muster("doctor", "plain.toml")
    assert result.exit_code == 0, result.output
    for subject in ("open files", "cores", "memory", "data directory"):
        assert f"ok  {subject}: " in result.stdout
    assert "for 2 devices" in result.stdout
    assert "for 10 devices" in muster("doctor").stdout


def test_doctor_says_what_is_too_little_and_what_to_do(muster: Muster) -> None:
    Path("huge.toml").write_text(PLAIN.replace("count = 2", "count = 100000"))
    result = muster("doctor", "huge.toml")
    assert result.exit_code == 1
    assert "NO  memory: " in result.stdout
    assert "run fewer devices" in result.stdout


def test_doctor_names_data_files_that_are_missing(muster: Muster) -> None:
    Path("mnist.toml").write_text(PLAIN.replace("linear", "mnist"))
    result = muster("doctor", "mnist.toml", "--data", "nowhere")
    assert result.exit_code == 1
    assert "NO  data directory: " in result.stdout
    assert "MNIST/raw/train-images-idx3-ubyte.gz" in result.stdout


def test_doctor_as_json_has_the_findings_and_the_same_exit_status(muster: Muster) -> None:
    good = muster("doctor", "plain.toml", "--json")
    assert good.exit_code == 0
    findings = {each["subject"]: each for each in json.loads(good.stdout)}
    assert findings.keys() == {"open files", "cores", "memory", "data directory"}
    assert all(finding["enough"] for finding in findings.values())
    Path("mnist.toml").write_text(PLAIN.replace("linear", "mnist"))
    bad = muster("doctor", "mnist.toml", "--data", "nowhere", "--json")
    assert bad.exit_code == 1
    *_, data = json.loads(bad.stdout)
    assert (data["subject"], data["enough"]) == ("data", False)
    assert "MNIST/raw/train-images-idx3-ubyte.gz" in data["found"]


def test_doctor_refuses_a_wrong_scenario(muster: Muster) -> None:
    Path("wrong.toml").write_text(PLAIN.replace("rounds = 3", ""))
    assert_refused(muster("doctor", "wrong.toml"), "server.rounds: required, but missing")


# --- verify --------------------------------------------------------------------------------------


def test_verify_prints_its_measurements_as_json_or_writes_them(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        compared("a", "a-0000", "rate up", 1e6, 0.9e6, tolerance=0.05),
        compared("a", "a-0000", "rtt", 0.1, math.inf, tolerance=None),
    ]
    made = Verification("plain", 0.5, Tolerances(), rows)
    monkeypatch.setattr(verification, "verify", lambda *_, **__: made)
    printed = muster("verify", "plain.toml", "--json", "-")
    assert printed.exit_code == 1
    values = json.loads(printed.stdout)
    assert (values["scenario"], values["ok"]) == ("plain", False)
    assert values["rows"][0]["deviation"] == pytest.approx(-0.1)
    assert values["rows"][1]["measured"] is None  # infinite
    assert not Path("-").exists()
    assert "a-0000" in muster("verify", "plain.toml", "--json", "found.json").stdout
    assert json.loads(Path("found.json").read_text())["rows"][0] == values["rows"][0]


# --- commands on a run folder --------------------------------------------------------------------


@pytest.mark.parametrize("command", ["report", "status", "watch", "stop"])
def test_a_folder_that_is_no_run_folder_is_refused(muster: Muster, command: str) -> None:
    Path("empty").mkdir()
    assert_refused(muster(command, "empty"), "error: empty is not a run folder", "scenario.toml")
    assert_refused(muster(command), "error: runs/latest is not a run folder")
    assert list(Path("empty").iterdir()) == []


def test_report_of_a_run_that_left_no_account_is_refused(muster: Muster) -> None:
    Path("run").mkdir()
    Path("run/scenario.toml").write_text(PLAIN)
    assert_refused(muster("report", "run"), "error: ", "ledger.sqlite")
    assert [path.name for path in Path("run").iterdir()] == ["scenario.toml"]


@pytest.mark.parametrize("command", ["status", "watch", "stop"])
def test_a_run_whose_server_never_started_answers_nothing(muster: Muster, command: str) -> None:
    Path("run").mkdir()
    Path("run/scenario.toml").write_text(PLAIN)
    result = muster(command, "run")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no server has been started in ")


def test_status_says_how_a_run_goes_on_whose_supervisor_was_killed(muster: Muster) -> None:
    Path("run/setup").mkdir(parents=True)
    Path("run/scenario.toml").write_text(PLAIN)
    hint = "If it was killed, `muster run --resume run` continues it"
    assert hint in muster("status", "run").stderr
    with own(Path("run")):  # as a supervisor that is still starting does
        assert "--resume" not in muster("status", "run").stderr


def ended_run(folder: Path) -> None:
    folder.mkdir()
    (folder / "scenario.toml").write_text(PLAIN)
    started = {"event": "server_started", "population": 2, "rounds": 3, "round": 0,
               "version": 0, "counts": "rounds",
               "bytes_up": 0, "bytes_down": 0}  # fmt: skip
    ended = {"event": "ended", "status": "completed", "detail": "3 rounds",
             "bytes_up": 10, "bytes_down": 20}  # fmt: skip
    torn = '{"event": "round_comm'
    lines = [json.dumps(started), torn, json.dumps(ended)]
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("command", ["status", "watch"])
def test_a_run_that_has_ended_says_so_and_how_its_containers_go(
    muster: Muster, command: str
) -> None:
    ended_run(Path("run"))
    result = muster(command, "run")
    assert result.exit_code == 0
    assert "the run has ended; completed: 3 rounds" in result.stdout
    assert "muster down" not in result.stdout
    Path("run", COMPOSE).write_text("")
    assert "`muster down run` removes them" in muster(command, "run").stdout
    told = [json.loads(line) for line in muster(command, "run", "--json").stdout.splitlines()]
    if command == "status":
        (values,) = told
        assert (values["state"], values["rounds"], values["bytes_down"]) == ("completed", 3, 20)
    else:
        assert [event["event"] for event in told] == ["server_started", "ended"]


# --- help ----------------------------------------------------------------------------------------

HELP = {
    "flower": ("Run the Flower app", "--devices", "--scenario", "--local", "--no-run", "--out"),
    "plan": ("without running it", "--out", "--set", "--data", "--json"),
    "verify": (
        "Measure SCENARIO's links",
        "--seconds",
        "--tolerance",
        "--devices",
        "--json",
        "--set",
        "--data",
    ),
    "run": ("Run SCENARIO", "--out", "--resume", "--set", "--data", "--quiet", "--track", "--json"),
    "compare": (
        "Run SCENARIO in variants",
        "--vary",
        "--seeds",
        "--out",
        "--resume",
        "--quiet",
        "--json",
    ),
    "league": (
        "Play aggregators in twelve scenarios",
        "--rules",
        "--scenarios",
        "--seeds",
        "--seed ",
        "--target",
        "--out",
        "--resume",
        "--data",
        "--jobs",
        "--quiet",
        "--json",
    ),
    "what-if": (
        "Play the runs in FOLDERS again",
        "--vary",
        "--set",
        "--out",
        "--data",
        "--figures",
        "--quiet",
        "--json",
    ),
    "worst": (
        "Search the schedule of absences",
        "--budget",
        "--rounds",
        "--against",
        "--family",
        "--runs",
        "--seed",
        "--processes",
        "--set",
        "--out",
        "--data",
        "--quiet",
        "--json",
    ),
    "calibrate": ("Fit speeds and links", "SOURCES", "--held-out", "--seed", "--out", "--json"),
    "life": ("Record the life of a fleet", "export", "show"),
    "study": (
        "Run the study NAME",
        "--quick",
        "--seed ",
        "--seeds",
        "--out",
        "--resume",
        "--backend",
        "--data",
        "--jobs",
        "--quiet",
        "--json",
    ),
    "certs": ("Make a certificate authority", "--days", "launch.authority"),
    "up": ("Start SCENARIO's fleet in containers", "--out", "--resume", "--set", "--data"),
    "down": ("remove all it has in Docker", "--all"),
    "status": ("how the run in FOLDER stands", "--json"),
    "watch": ("Follow the run in FOLDER", "--json"),
    "stop": ("End the run in FOLDER", "resumed"),
    "revoke": ("Revoke the credentials of DEVICE", "goes on without"),
    "inject": (
        "Inject a fault of programs or links",
        "--target",
        "--for-s",
        "--until-healed",
        "--name",
    ),
    "heal": ("Heal the fault NAME",),
    "pause": ("Pause programs of the fleet", "not ended", "--for-s", "--until-healed"),
    "unpause": ("Let all paused programs", "muster run --resume"),
    "export-faults": ("injected by hand", "[[faults]]"),
    "live": ("Show the run in FOLDER", "have been killed", "--port"),
    "doctor": ("can carry", "--backend", "--data", "--json"),
    "report": ("figures",),
    "export": ("for other programs", "--to", "--out", "Nothing is overwritten"),
    "audit": ("Check the run in FOLDER", "--json"),
    "init": ("project", "rule", "tests", "No file is overwritten", "--example", "--list"),
    "list": ("List what there is of a KIND", "--json"),
    "trace": ("recordings of links", "import", "export"),
    "devices": ("a table of devices from a list of another project", "import"),
}


def test_the_help_of_inject_has_every_kind_of_fault(muster: Muster) -> None:
    text = " ".join(muster("inject", "--help").stdout.split())
    kinds = text.partition("KIND is ")[2].partition(" (docs/faults.md)")[0].replace("- ", "-")
    assert set(re.split(r", | or ", kinds)) == INJECTED.keys()


@pytest.mark.parametrize("command", [("inject", "run", "pause", "--target"), ("pause", "run")])
def test_a_target_with_two_values_of_a_key_is_refused(
    muster: Muster, command: tuple[str, ...]
) -> None:
    again = ["--target"] if "--target" in command else []
    refused = muster(*command, "group=phones", *again, "group=far")
    assert_refused(refused, "group=far: the target has group already")


def test_every_command_is_known_to_these_tests() -> None:
    assert isinstance(main, click.Group)
    assert main.commands.keys() == HELP.keys()


@pytest.mark.parametrize("command", sorted(HELP))
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_says_what_a_command_does(muster: Muster, command: str, flag: str) -> None:
    result = muster(command, flag)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for words in HELP[command]:
        assert words in text


def test_help_lists_every_command(muster: Muster) -> None:
    result = muster("--help")
    assert result.exit_code == 0
    for command in HELP:
        assert f"\n  {command} " in result.stdout


def test_the_version_is_told(muster: Muster) -> None:
    result = muster("--version")
    assert result.exit_code == 0
    assert "0.1.0" in result.stdout


def test_a_port_in_use_is_refused_before_anything_starts(muster: Muster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = muster("run", "plain.toml", "--set", f"server.port={port}")
    assert_refused(refused, f"error: server.port: {port} on 127.0.0.1 cannot be used", "choose")


def test_a_live_page_names_the_extra_that_it_needs(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command in (("run", "plain.toml", "--live"), ("live", ".")):
        assert_refused(muster(*command), "starlette and uvicorn", install_command("live"))


def test_a_port_without_a_live_page_is_refused(muster: Muster) -> None:
    assert_refused(muster("run", "plain.toml", "--port", "8000"), "expected --live")


@pytest.mark.parametrize("tracker", ["mlflow", "tensorboard", "wandb"])
def test_a_tracker_without_its_library_is_refused(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, tracker: str
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    refused = muster("run", "plain.toml", "--track", tracker)
    assert_refused(refused, f"--track {tracker} needs {tracker}", install_command(tracker))


def test_a_live_page_names_a_port_that_is_taken(muster: Muster) -> None:
    pytest.importorskip("starlette")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = str(other.getsockname()[1])
        refused = muster("run", "plain.toml", "--live", "--port", port)
    assert_refused(refused, f"--port {port} cannot be opened", "give another")


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for part in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _commands(part[1], f"{name} {part[0]}")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_number_of_an_option_is_finite(text: str) -> None:
    found = [
        (name, option)
        for name, command in _commands(main, "muster")
        for option in command.params
        if isinstance(option.type, click.FloatRange)
    ]
    assert ("muster verify", "tolerance") in [(name, option.name) for name, option in found]
    for _, option in found:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)

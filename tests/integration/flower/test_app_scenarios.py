"""Scenarios that `muster flower` writes, and the files that an app writes."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.integration.flower.conftest import CLIENT, EVALUATE, MAIN, PROJECT, SERVER, TRAIN, filled

from muster.cli.commands import main
from muster.emulator.records.account import Account

if TYPE_CHECKING:
    from tests.integration.flower.conftest import MakeApp

WRITES = "\n        open('written.txt', 'a').write('here')"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an app whose device i has 10 (i + 1) examples, beside the current directory."""
    pytest.importorskip("flwr", reason="needs Flower, the extra flower")
    folder = tmp_path / "small"
    package = folder / "small"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(name="small").replace("\n    ", "\n"))
    client = filled(CLIENT, train=WRITES + TRAIN, evaluate=EVALUATE)
    (package / "client.py").write_text(client)
    (package / "server.py").write_text(filled(SERVER, main=WRITES + MAIN))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return folder


def test_every_device_is_counted(make_app: MakeApp) -> None:
    assert make_app().count_examples() == [10, 20, 30, 40]


def test_a_rehearsal_leaves_no_file(make_app: MakeApp, tmp_path: Path) -> None:
    before = sorted(os.listdir())
    make_app(main=WRITES + MAIN).module()
    assert sorted(os.listdir()) == before


def test_an_app_is_run_by_one_command_and_its_files_stay_with_the_run(app: Path) -> None:
    ended = CliRunner().invoke(main, ["flower", str(app), "-n", "3", "--out", "out"])
    assert ended.exit_code == 0, ended.output
    written = tomllib.loads(Path("small.toml").read_text())
    assert written["task"] == {"name": "flower", "app": "../small", "examples": 30}
    assert written["groups"] == [{"name": "node", "count": 3}]
    assert json.loads(Path("out/summary.json").read_text())["rounds"] == 2
    assert "here" in Path("out/files/written.txt").read_text()
    assert sorted(os.listdir()) == ["out", "small.toml"]


def test_what_an_app_measures_is_in_the_account_of_the_run(app: Path) -> None:
    ended = CliRunner().invoke(main, ["flower", str(app), "-n", "3", "--out", "out"])
    assert ended.exit_code == 0, ended.output
    # The mean of three nodes adds (10·1 + 20·2 + 30·3) / 60 = 7/3 to 7 parameters, first 3 in sum.
    # The means of EVALUATE have the weights 1, 2, 3: of the index i it is 8/6.
    losses = [3 + round * 49 / 3 + 8 / 6 for round in (1, 2)]
    with Account(Path("out")) as account:
        measured = account.app_metrics.pivot(index="round", columns="metric", values="value")
        told = [(e["round"], e["metrics"]) for e in account.events("app_measured")]
    assert measured["evaluate.eval_loss"].to_dict() == pytest.approx({1: losses[0], 2: losses[1]})
    assert measured["train.train_loss"].to_dict() == {1: 0.5, 2: 0.5}
    assert told == [(round, dict(row)) for round, row in measured.iterrows()]
    assert "Metrics of the app" in Path("out/report.html").read_text()
    audited = CliRunner().invoke(main, ["audit", "out"])
    assert audited.exit_code == 0, audited.output


def test_an_audit_finds_metrics_that_are_told_twice_or_otherwise(app: Path) -> None:
    CliRunner().invoke(main, ["flower", str(app), "-n", "3", "--out", "out"])
    journal = Path("out/journal.jsonl")
    text = journal.read_text()
    line = next(each for each in text.splitlines() if '"app_measured"' in each)
    for spoilt, what in [
        (f"{text}{line}\n", "times that the journal has the event app_measured of round 1"),
        (text.replace(f"{line}\n", ""), "times that the journal has the event app_measured"),
        # The sum of this line is not right any more, so the line counts as missing.
        (text.replace('"train.train_loss":0.5', '"train.train_loss":0.6'), "event app_measured"),
    ]:
        journal.write_text(spoilt)
        audited = CliRunner().invoke(main, ["audit", "out"])
        assert audited.exit_code == 1
        assert what in " ".join(audited.output.split())


def test_no_scenario_is_overwritten(app: Path) -> None:
    Path("small.toml").write_text("mine")
    ended = CliRunner().invoke(main, ["flower", str(app), "-n", "3"])
    assert (ended.exit_code, Path("small.toml").read_text()) == (2, "mine")
    assert "small.toml exists" in ended.output

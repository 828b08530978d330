"""`muster export`: the files are read back by the programs for which they are written."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.common.installation import install_command
from muster.emulator.export import EXPORTERS, mlflow_store
from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import TABLES, Account

from .conftest import STARTED_AT, RunFolder


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["export", *map(str, arguments)])


@pytest.fixture
def two_rounds(run: RunFolder) -> RunFolder:
    """Two devices in two rounds, of which the second misses an update; the run goes on."""
    run.clients("a", "b")
    run.evaluate(2.0, 0.25, distance=8.0)
    run.round({"a": "folded", "b": "folded"}, sent={"b": {"staleness": 4, "train_s": 1.5}})
    run.evaluate(1.0, 0.5, distance=3.0)
    run.measure({"phones": (10, 1.25, 0.75)}, {})
    run.round({"a": "folded", "b": "late: deadline"}, seconds=3.0)
    run.evaluate(float("inf"))
    run.commit()
    return run


def values(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The metrics of a run: by name, the rounds and values."""
    found: dict[str, list[tuple[int, float]]] = {}
    with Account(path) as account:
        for metric in metric_points(account):
            found.setdefault(metric.name, []).append((metric.round, metric.value))
    return found


def test_the_metrics_are_those_of_the_rounds_and_of_the_evaluations(two_rounds: RunFolder) -> None:
    found = values(two_rounds.path)
    assert found["model/loss"] == [(0, 2.0), (1, 1.0)]  # in round 2 it is not finite
    assert found["model/accuracy"] == [(0, 0.25), (1, 0.5)]
    assert found["model/distance"] == [(0, 8.0), (1, 3.0)]
    assert found["group phones/loss"] == [(1, 1.25)]
    assert found["round/called"] == [(1, 2.0), (2, 2.0)]
    assert found["round/seconds"] == [(1, 2.0), (2, 3.0)]
    assert found["round/bytes_wasted"] == [(1, 0.0), (2, 1000.0)]
    assert found["updates/folded"] == [(1, 2.0), (2, 1.0)]
    assert found["updates/late"] == [(1, 0.0), (2, 1.0)]
    assert found["folded updates/staleness"] == [(1, 2.5), (2, 1.0)]
    assert found["folded updates/train_s"] == [(1, 1.0), (2, 0.5)]
    assert "round/epsilon" not in found  # there is no privacy


def test_a_metric_has_the_time_at_which_it_was_known(two_rounds: RunFolder) -> None:
    with Account(two_rounds.path) as account:
        times = {(metric.name, metric.round): metric.at for metric in metric_points(account)}
    assert times["model/loss", 0] == STARTED_AT
    assert times["round/called", 2] == STARTED_AT + 5


def test_updates_of_an_open_round_are_no_metric_yet(two_rounds: RunFolder) -> None:
    two_rounds.contribute("a", "folded", round=3)
    two_rounds.commit()
    assert values(two_rounds.path)["updates/folded"] == [(1, 2.0), (2, 1.0)]


def test_the_tables_are_those_of_the_ledger_but_the_servers_own(run: RunFolder) -> None:
    names = run.ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    own = {"run", "inputs", "versions", "aggregator_state", "memory", "shared_work"}
    assert {name for (name,) in names} - own == set(TABLES)


def test_csv_has_every_table_as_the_ledger_has_it(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    done = export(two_rounds.path, "--to", "csv")
    assert done.exit_code == 0, done.output
    assert done.output == "exports/csv/run\n"
    out = Path("exports/csv/run")
    assert {path.name for path in out.iterdir()} == {f"{name}.csv" for name in TABLES}
    with closing(sqlite3.connect(two_rounds.path / "ledger.sqlite")) as ledger:
        for name in ("rounds", "contributions", "answers"):
            rows = ledger.execute(f"SELECT * FROM {name} ORDER BY round")
            read = pd.read_csv(out / f"{name}.csv")
            assert list(read.columns) == [column[0] for column in rows.description]
            expected = [list(row) for row in rows]
            assert read.astype(object).where(read.notna(), None).values.tolist() == expected


def test_a_second_export_overwrites_nothing(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    Path("mine").mkdir()
    Path("mine/rounds.csv").write_text("mine")
    for out in ("mine", "mine/rounds.csv"):
        refused = export(two_rounds.path, "--to", "csv", "--out", out)
        assert refused.exit_code == 2
        assert "is not an empty folder, and muster export overwrites nothing" in refused.output
    assert [path.name for path in Path("mine").iterdir()] == ["rounds.csv"]
    assert Path("mine/rounds.csv").read_text() == "mine"


@pytest.mark.parametrize("status", [None, "completed", "failed"])
def test_a_run_is_exported_whether_it_goes_on_or_ended_or_crashed(
    two_rounds: RunFolder, export: Callable[..., Result], status: str | None
) -> None:
    if status is not None:
        two_rounds.end(status)
    before = sorted(two_rounds.commit().iterdir())
    assert export(two_rounds.path, "--to", "csv", "--out", "out").exit_code == 0
    assert len(pd.read_csv("out/rounds.csv")) == 2
    assert sorted(two_rounds.path.iterdir()) == before


def test_what_is_no_run_is_refused_and_nothing_is_made(
    tmp_path: Path, export: Callable[..., Result]
) -> None:
    Path("empty").mkdir()
    refused = export("empty", "--to", "csv")
    assert refused.exit_code == 2
    assert "empty is not a run folder" in refused.output
    Path("empty/scenario.toml").touch()
    refused = export("empty", "--to", "csv")
    assert refused.exit_code == 2
    assert "ledger.sqlite" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("to", ["parquet", "tensorboard", "mlflow"])
def test_a_missing_library_is_refused_with_the_extra_that_installs_it(
    two_rounds: RunFolder,
    export: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    to: str,
) -> None:
    package = EXPORTERS[to].package
    monkeypatch.setitem(sys.modules, package, None)
    refused = export(two_rounds.path, "--to", to)
    assert refused.exit_code == 2
    assert f"--to {to} needs {package}, which is not installed" in refused.output
    assert install_command(to) in refused.output
    assert not Path("exports").exists()


def test_every_format_is_an_option() -> None:
    [option] = (each for each in main.commands["export"].params if each.name == "to")
    assert list(option.type.choices) == list(EXPORTERS)  # type: ignore[attr-defined]


def test_parquet_has_every_table_with_its_types(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    pytest.importorskip("pyarrow")
    assert export(two_rounds.path, "--to", "parquet", "--out", "out").exit_code == 0
    assert {path.name for path in Path("out").iterdir()} == {f"{name}.parquet" for name in TABLES}
    read = pd.read_parquet("out/contributions.parquet")
    assert read["staleness"].tolist() == [1, 4, 1, 1]
    assert read["outcome"].tolist() == ["folded", "folded", "folded", "late"]
    assert read["weight"].isna().tolist() == [False, False, False, True]


def test_tensorboard_reads_the_metric_points_every_round(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    module = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(module).EventAccumulator("out")
    assert export(two_rounds.path, "--to", "tensorboard", "--out", "out").exit_code == 0
    events.Reload()
    read = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    assert read == {
        name: [(round_, pytest.approx(value)) for round_, value in points]
        for name, points in values(two_rounds.path).items()
    }
    assert events.Scalars("round/called")[1].wall_time == STARTED_AT + 5


of_mlflow = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from within MLflow


def mlflow_runs(store: str) -> Any:
    database = Path(store, "mlflow.db").resolve()
    client = pytest.importorskip("mlflow").MlflowClient(f"sqlite:///{database}")
    return client, client.search_runs([e.experiment_id for e in client.search_experiments()])


@of_mlflow
def test_mlflow_reads_settings_metrics_and_artifacts(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    pytest.importorskip("mlflow")
    two_rounds.end("completed")
    two_rounds.commit()
    done = export(two_rounds.path, "--to", "mlflow")
    assert done.exit_code == 0, done.output
    client, [found] = mlflow_runs("exports/mlflow")
    assert client.get_experiment(found.info.experiment_id).name == "small-world"
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.info.start_time == 1000 * STARTED_AT
    assert found.data.params == {"name": "small-world", "seed": "7", "server.rounds": "3"}
    assert found.data.tags["muster.status"] == "completed"
    history = client.get_metric_history(found.info.run_id, "model/accuracy")
    assert [(metric.step, metric.value) for metric in history] == [(0, 0.25), (1, 0.5)]
    assert found.data.metrics.keys() == values(two_rounds.path).keys()
    [artifact] = client.list_artifacts(found.info.run_id)
    assert artifact.path == "scenario.toml"


@of_mlflow
def test_a_store_of_mlflow_takes_several_runs_and_each_once(
    two_rounds: RunFolder, export: Callable[..., Result]
) -> None:
    pytest.importorskip("mlflow")
    assert export(two_rounds.path, "--to", "mlflow").exit_code == 0
    refused = export(two_rounds.path, "--to", "mlflow")
    assert refused.exit_code == 2
    assert "exports/mlflow has this run already" in refused.output
    two_rounds.ledger.execute("UPDATE run SET id = 'run-2'")
    two_rounds.commit()
    assert export(two_rounds.path, "--to", "mlflow").exit_code == 0
    _, found = mlflow_runs("exports/mlflow")
    assert {each.data.tags["muster.run"] for each in found} == {"run-1", "run-2"}
    assert {each.info.status for each in found} == {"RUNNING"}
    assert json.loads(found[0].data.params["server.rounds"]) == 3


@of_mlflow
def test_a_run_whose_export_to_a_store_failed_can_be_exported_again(
    two_rounds: RunFolder, export: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    assert export(two_rounds.path, "--to", "mlflow").exit_code == 0  # so that the store is kept
    two_rounds.ledger.execute("UPDATE run SET id = 'run-2'")
    two_rounds.commit()
    with monkeypatch.context() as broken:
        broken.setattr(mlflow_store, "metric_points", lambda account: 1 / 0)
        assert isinstance(export(two_rounds.path, "--to", "mlflow").exception, ZeroDivisionError)
    assert export(two_rounds.path, "--to", "mlflow").exit_code == 0
    _, found = mlflow_runs("exports/mlflow")
    whole = {each.data.tags["muster.run"] for each in found if each.data.metrics}
    assert whole == {"run-1", "run-2"}

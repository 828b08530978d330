"""`muster list`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.cli.listing import named_lists
from muster.client.life.device_settings import PROFILES
from muster.emulator.links.settings import PRESETS
from muster.emulator.scenario.plug_ins import PLUG_INS
from muster.studies.registry import STUDIES


def listed(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["list", *arguments])


def test_every_list_of_the_plug_ins_has_all_of_them() -> None:
    expected = {
        "availabilities": "groups.availability",
        "faults": "faults.do",
        "learning-rate-schedules": "training.learning_rate",
        "models": "task.model",
        "aggregators": "server.aggregator",
        "tasks": "task",
    }
    for kind, path in expected.items():
        names = {line.split()[0] for line in listed(kind).output.splitlines()}
        assert names == PLUG_INS[path].names()
    assert len(named_lists()) == len(PLUG_INS) + 4


@pytest.mark.parametrize("kind", sorted(named_lists()))
def test_each_line_has_a_name_and_a_sentence_on_one_line(kind: str) -> None:
    rows = json.loads(listed(kind, "--json").output)
    assert rows
    for row in rows:
        assert row.keys() == {"name", "about"}
        assert row["name"]
        assert row["about"].strip() == row["about"] != ""
    lines = listed(kind).output.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        [row["name"], row["about"]] for row in rows
    ]


def test_a_line_has_the_first_sentence_of_the_docstring() -> None:
    fedavg = "θ ← θ + Σ n_i·Δ_i / Σ n_i, with n_i the number of training examples of client i."
    assert {"name": "fedavg", "about": fedavg} in json.loads(listed("aggregators", "--json").output)


def test_profiles_have_their_presets_as_a_scenario_has_them() -> None:
    rows = dict(line.split(maxsplit=1) for line in listed("profiles").output.splitlines())
    assert rows.keys() == PROFILES.keys()
    assert rows["gateway"] == "{ examples_per_s = 200.0 }"
    assert 'connectivity = { kind = "mobile" }' in rows["phone"]
    links = dict(line.split(maxsplit=1) for line in listed("link-profiles").output.splitlines())
    assert links.keys() == PRESETS.keys()
    assert links["3g"].startswith('{ down = "1.6 Mbit/s", up = "750 kbit/s", rtt = "300 ms"')


def test_studies_are_listed_by_what_they_show() -> None:
    rows = json.loads(listed("studies", "--json").output)
    assert {row["name"]: row["about"] for row in rows} == {
        name: STUDIES.find(name).about for name in STUDIES.names()
    }


def test_rules_are_aggregators() -> None:
    assert listed("rules").output == listed("aggregators").output


def test_without_a_kind_the_kinds_are_listed() -> None:
    lines = listed().output.splitlines()
    assert [line.split()[0] for line in lines] == sorted(named_lists())
    assert "tasks                    for task" in lines


def test_an_unknown_kind_is_refused_with_those_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout may have runs
    refused = listed("phones")
    assert refused.exit_code == 2
    assert "there is no list of 'phones'; there are: aggregators, " in refused.output
    assert not Path("runs").exists()

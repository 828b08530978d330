"""`muster list`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.cli.listing import named_lists
from muster.client.life.device_settings import DEVICES
from muster.emulator.links.settings import LINKS
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
    assert len(named_lists()) == len(PLUG_INS) + 5


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


def test_presets_have_their_settings_as_a_scenario_has_them_and_their_source() -> None:
    devices = dict(line.split(maxsplit=1) for line in listed("devices").output.splitlines())
    assert devices.keys() == DEVICES.keys()
    assert len(devices) >= 35
    assert devices["gateway"] == "{ examples_per_s = 200.0 } · assumption"
    assert 'connectivity = { kind = "mobile" }' in devices["phone"]
    assert "Google Pixel 5 (Snapdragon 765G, 6+1+1 cores), CoreMark" in devices["pixel-5"]
    assert "freqbench by Danny Lin" in devices["pixel-5"]
    links = dict(line.split(maxsplit=1) for line in listed("links").output.splitlines())
    assert links.keys() == LINKS.keys()
    assert len(links) >= 40
    assert links["2g-rural"] == (
        '{ down = "20 kbit/s", up = "18 kbit/s", rtt = "1300 ms", loss = 0.02 } · Augmented '
        "Traffic Control of Facebook, utils/profiles (2015; BSD-3-Clause)"
    )
    assert links["5g"].endswith("; assumption: rtt, jitter, fading")
    assert "production " in listed("lives").output


def test_former_names_of_lists_still_work() -> None:
    assert listed("profiles").output == listed("devices").output
    assert listed("link-profiles").output == listed("links").output


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

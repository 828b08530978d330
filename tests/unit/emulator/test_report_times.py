"""Times of a report: modelled seconds if the scenario models them, and whose seconds they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.emulator.charts import charts_of

from muster.emulator.fleet.lives import members_of
from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import sections, times
from muster.emulator.report.section import ReportSection, ReportTable
from muster.emulator.report.training_times import modelled_training
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

MODELLED = """
name = "slow"
[training]
local_epochs = 3
[[groups]]
name = "phones"
[groups.device]
examples_per_s = 10.0
[[groups]]
name = "hosts"
[groups.device]
"""


def section_of(folder: Path) -> ReportSection:
    with Account(folder) as account:
        return times.section(account, outline(account))


def panels(folder: Path) -> dict[str, str]:
    """The titles of the charts, and the labels that say whose seconds they show."""
    return {
        chart.title: chart.y.label if chart.over_rounds else chart.x.label
        for chart in charts_of("time", folder)
    }


def trained(run: RunFolder) -> Path:
    """Three updates that took milliseconds on this machine, of clients of different sizes."""
    run.clients("a", examples=100)
    run.clients("b", examples=200)
    run.clients("c", group="hosts")
    run.round({"a": "folded", "b": "folded", "c": "folded"},
              sent={"a": {"train_s": 0.002}, "b": {"train_s": 0.004}})  # fmt: skip
    run.round({"a": "folded"}, sent={"a": {"train_s": 0.002}}, seconds=4.0)
    return run.commit()


def clients_table(account: Account) -> ReportTable:
    section = sections.clients(account, outline(account))
    assert section is not None
    assert isinstance(section.table, ReportTable)
    return section.table


def test_training_is_shown_in_the_seconds_of_the_modelled_devices(run: RunFolder) -> None:
    run.scenario(MODELLED)
    folder = trained(run)
    with Account(folder) as account:
        assert modelled_training(account).to_dict() == {"a": 30.0, "b": 60.0}
    assert panels(folder)["Modelled training: median 30 s, 95 % under 57 s"] == (
        "seconds of the modelled devices"
    )
    text = section_of(folder).text
    assert "Training is the time that the modelled devices need" in text
    assert "Devices of groups that model no speed are left out" in text  # the hosts


def test_the_table_of_clients_has_the_modelled_seconds(run: RunFolder) -> None:
    run.scenario(MODELLED)
    with Account(trained(run)) as account:
        table = clients_table(account)
    place = table.columns.index("modelled training")
    assert [row[place] for row in table.rows] == ["30 s", "1 min 00 s", "–"]


def test_times_that_are_not_modelled_are_said_to_be_those_of_this_machine(run: RunFolder) -> None:
    folder = trained(run)
    shown = panels(folder)
    assert shown["A round took 3 s (median), 4 s at most"] == "seconds on this machine"
    training = next(title for title in shown if title.startswith("Training: median 3 ms"))
    assert shown[training] == "seconds on this machine"
    assert "All times were measured on this machine." in section_of(folder).text
    with Account(folder) as account:
        columns = clients_table(account).columns
    assert "mean training on this machine" in columns


def test_a_speed_that_is_a_distribution_gives_the_seconds_that_a_run_models(run: RunFolder) -> None:
    speed = {"kind": "log-normal", "median": 10.0, "sigma": 1.0}
    group = {"name": "phones", "count": 3, "device": {"examples_per_s": speed}}
    planned = Scenario.model_validate(
        {
            "name": "slow",
            "seed": 9,
            "task": {"name": "digits"},
            "server": {"rounds": 1},
            "groups": [group],
        }
    )
    members = members_of(planned, planned.groups[0], population(planned))
    run.scenario(
        'seed = 9\n[[groups]]\nname = "phones"\n[groups.device]\n'
        'examples_per_s = { kind = "log-normal", median = 10.0, sigma = 1.0 }'
    )
    run.clients(*(member.client for member in members), examples=50)
    expected = {m.client: 50 / m.examples_per_s for m in members if m.examples_per_s}
    assert len(set(expected.values())) == 3
    with Account(run.commit()) as account:
        assert modelled_training(account).to_dict() == pytest.approx(expected)


def test_an_update_that_was_given_up_did_not_train(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, aborted={"b": "drop-out"})
    run.ledger.execute("UPDATE contributions SET examples = 0, train_s = 0 WHERE client = 'b'")
    assert "Training: 0.50 s for every update, on this machine." in section_of(run.commit()).points


def test_a_single_value_is_stated_and_not_drawn(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded", "b": "folded"}, sent={"a": {"transfer_s": 2e-6}, "b":
              {"transfer_s": 1e-6}})  # fmt: skip
    section = section_of(run.commit())
    assert section.figure == ""
    assert section.points == [
        "The only round took 2 s on this machine.",
        "Training: 0.50 s for every update, on this machine.",
        "Transfer: under a millisecond for every update, on this machine.",
    ]


def test_updates_that_report_no_time_are_said_to_report_none(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"}, sent={"a": {"transfer_s": None}})
    assert section_of(run.commit()).points[-1] == ("Transfer: no update reported how long it took.")


@pytest.mark.parametrize(
    "broken",
    [
        '[training]\nlocal_steps = "x"',
        '[[groups]]\nname = "phones"\ndevice = { examples_per_s = "x" }',
    ],
)
def test_a_scenario_that_cannot_be_read_has_the_times_of_this_machine(
    run: RunFolder, broken: str
) -> None:
    run.scenario(broken)
    assert "All times were measured" in section_of(trained(run)).text

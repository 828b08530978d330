"""The report of runs in which an update may count in a later round than that of its call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.emulator.charts import findings

from muster.emulator.records.account import Account
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.records.summary import outline
from muster.emulator.report import staleness
from muster.emulator.report.sections import headline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

SCENARIO = """
name = "late"
[clock]
kind = "rounds"
[server.mode]
kind = "{mode}"
{more}
"""


def carried(run: RunFolder, mode: str) -> Path:
    """Two rounds: the slow device is called in round 1, and its update counts in round 2."""
    more = "" if mode == "synchronous" else "max_staleness = 10"
    run.scenario(SCENARIO.format(mode=mode, more=more))
    run.clients("a", group="fast")
    run.clients("b", "c", group="slow")
    run.round({"a": "folded"}, sent={"a": {"staleness": 0}})
    run.add("answers", round=1, client="b", decision="accept", at=run.time)
    run.round({"a": "folded", "c": "late: stale"}, sent={"a": {"staleness": 0}})
    run.contribute("b", "folded", call_round=1, staleness=1, weight=50.0)
    return run.commit()


def test_the_table_of_staleness_counts_updates_and_weights_of_each_group(run: RunFolder) -> None:
    with Account(carried(run, "buffered")) as account:
        found = staleness.section(account, outline(account))
    assert found is not None
    assert found.table is not None
    assert list(map(list, found.table.rows)) == [
        ["fast", "2", "0", "0", "80.0 %", "0"],  # 200 of 250
        ["slow", "1", "1", "1", "20.0 %", "1"],
    ]


def test_the_figure_of_staleness_says_what_it_shows(run: RunFolder) -> None:
    assert findings("staleness", carried(run, "opportunistic")) == [
        "33.3 % of the folded updates were stale, by 1 version at most",
        "fast: median 0, mean 0",
        "slow: median 1, mean 1",
    ]


def test_a_synchronous_run_has_no_section_on_staleness(run: RunFolder) -> None:
    with Account(carried(run, "synchronous")) as account:
        assert staleness.section(account, outline(account)) is None


def test_an_update_belongs_to_the_call_for_which_it_came(run: RunFolder) -> None:
    with Account(carried(run, "opportunistic")) as account:
        calls = account.calls
    of_b = calls[calls["client"] == "b"]
    assert list(zip(of_b["round"], of_b["fate"], strict=True)) == [(1, "folded")]


def test_the_headline_counts_versions_if_the_server_said_so(run: RunFolder) -> None:
    folder = carried(run, "opportunistic")
    with Account(folder) as account:
        assert "versions" not in dict(headline(account, outline(account)).facts)
    run.journal({"event": "server_started", "counts": "versions"})
    with Account(folder) as account:
        facts = dict(headline(account, outline(account)).facts)
    assert facts["versions"] == "2"
    assert "rounds" not in facts


def test_a_run_from_before_there_were_modes_is_synchronous(run: RunFolder) -> None:
    folder = carried(run, "buffered")
    run.scenario('name = "old"\n[clock]\nkind = "rounds"\n[server]\nmode = "synchronous"')
    with Account(folder) as account:
        assert not outlives_round(account.scenario)
        assert not account.counts_versions

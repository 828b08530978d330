"""The plan of a scenario whose updates may outlive their round says what the ledger of its run
says: every call, every answer, and what became of every update."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.property.test_fluid import Start, stepped

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import by_group, life_of, members_of
from muster.emulator.planning import plan
from muster.emulator.planning.group_lives import GroupLives
from muster.emulator.planning.result import GroupPlan, Learning
from muster.emulator.records.account import Account
from muster.emulator.run_folder.folder import LEDGER
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.server.rounds.modes import contract
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

QUICK: dict[str, Any] = {
    "name": "quick",
    "count": 5,
    "devices_per_process": 5,
    "device": {"examples_per_s": {"kind": "log-normal", "median": 20, "sigma": 0.4}},
}
SLOW: dict[str, Any] = {
    "name": "slow",
    "count": 4,
    "devices_per_process": 2,
    "device": {"examples_per_s": {"kind": "log-normal", "median": 3, "sigma": 0.5}},
}
ABSENT = {**SLOW, "availability": {"kind": "markov", "mean_up_s": 30, "mean_down_s": 15}}
PHONES: dict[str, Any] = {
    "name": "phones",
    "count": 5,
    "device": {"profile": "phone", "examples_per_s": 0.02},
    "participation": {"require": ["unmetered"], "drop_out": 0.2},
    "link": {"up": "20 kbit/s", "rtt": "300 ms"},
}
DROPPING = {**QUICK, "participation": {"drop_out": 0.3, "willing": 0.8}}
VALLEY: dict[str, Any] = {
    **SLOW,
    "name": "valley",
    "count": 5,
    "devices_per_process": 1,
    "device": {"examples_per_s": {"kind": "log-normal", "median": 10, "sigma": 0.5}},
    "availability": {"kind": "bernoulli", "probability": 0.8},
    "participation": {"drop_out": 0.1},
    "link": {"rtt": "200 ms", "down": "3 kbit/s"},
    "shared_link": {"up": "3 kbit/s", "down": "5 kbit/s"},
}
"""An update takes at least 1 s over the link, and 5 s if all devices send one."""
NOBODY = {"name": "nobody", "count": 2, "enrollment": {"kind": "bernoulli", "probability": 0.0}}

BUFFERED: dict[str, Any] = {"kind": "buffered", "k": 3, "concurrency": 6}
AT_FINISH: dict[str, Any] = {**BUFFERED, "calls_at": "finish"}
OPPORTUNISTIC: dict[str, Any] = {"kind": "opportunistic", "max_staleness": 3}

SCENARIOS: dict[str, dict[str, Any]] = {
    "buffered": {"server": {"mode": BUFFERED}, "groups": [QUICK, ABSENT]},
    "fedasync": {
        "server": {"mode": {**BUFFERED, "k": 1, "concurrency": 4}, "aggregator": "fedasync"},
        "groups": [QUICK, SLOW],
    },
    "too stale": {
        "server": {"mode": {**BUFFERED, "k": 2, "max_staleness": 1}},
        "groups": [QUICK, SLOW],
    },
    "expired": {"server": {"mode": BUFFERED, "deadline_s": 2.5}, "groups": [DROPPING, ABSENT]},
    "few take part": {
        "server": {"mode": {"kind": "buffered", "k": 5, "concurrency": 8}},
        "groups": [NOBODY, {**ABSENT, "count": 7, "availability": {
            "kind": "bernoulli", "probability": 0.2}}],
    },
    "calls at each finish": {"server": {"mode": AT_FINISH}, "groups": [QUICK, ABSENT]},
    "fedasync at each finish": {
        "server": {"mode": {**AT_FINISH, "k": 1, "concurrency": 4}},
        "groups": [QUICK, SLOW],
    },
    "a deadline at each finish": {
        "server": {"mode": AT_FINISH, "deadline_s": 2.5},
        "groups": [DROPPING, ABSENT],
    },
    "few take part at each finish": {
        "server": {"mode": {**AT_FINISH, "k": 5, "concurrency": 8}},
        "groups": [NOBODY, {**ABSENT, "count": 7, "availability": {
            "kind": "bernoulli", "probability": 0.2}}],
    },
    "a shared link at each finish": {
        "server": {"mode": {**AT_FINISH, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [{**QUICK, "count": 2}, VALLEY],
    },
    "jitter": {
        "server": {"mode": {**AT_FINISH, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [QUICK, {**VALLEY, "link": {**VALLEY["link"], "jitter": "300 ms"}}],
    },
    "a link of two groups": {
        "server": {"mode": {**AT_FINISH, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [
            {
                **QUICK,
                "count": 2,
                "devices_per_process": 1,
                "shared_link": {"name": "region"},
            },
            {**VALLEY, "shared_link": {**VALLEY["shared_link"], "name": "region"}},
        ],
    },
    "opportunistic": {
        "server": {"mode": OPPORTUNISTIC, "deadline_s": 4.0},
        "groups": [QUICK, ABSENT],
    },
    "a gap between rounds": {
        "server": {"mode": OPPORTUNISTIC, "deadline_s": 2.0},
        "groups": [DROPPING, SLOW],
    },
    "a goal and a selection": {
        "server": {
            "mode": {**OPPORTUNISTIC, "max_staleness": 1},
            "goal": 2,
            "minimum": 2,
            "selection": {"kind": "uniform", "k": 4},
        },
        "groups": [QUICK, ABSENT],
    },
    "too few for the rule": {
        "server": {
            "mode": OPPORTUNISTIC,
            "deadline_s": 4.0,
            "aggregator": {"kind": "multi-krum", "byzantine": 1},
        },
        "groups": [{**DROPPING, "participation": {"drop_out": 0.5}}, ABSENT],
    },
    "a shared link": {"server": {"mode": BUFFERED}, "groups": [QUICK, VALLEY]},
    "a shared link and a deadline": {
        "server": {"mode": {**BUFFERED, "k": 2, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [{**QUICK, "count": 2}, VALLEY, {**VALLEY, "name": "other", "count": 2}],
    },
    "a shared link and rounds": {
        "server": {"mode": OPPORTUNISTIC, "deadline_s": 3.0, "goal": 4},
        "groups": [QUICK, VALLEY],
    },
    "phones": {
        "clock": {"round_s": 600.0, "starts_at_h": 20},
        "server": {"mode": {"kind": "buffered", "k": 2, "concurrency": 5}, "rounds": 40},
        "groups": [PHONES, {**QUICK, "count": 1}],
    },
}  # fmt: skip


def scenario(name: str, sections: dict[str, Any] | None = None) -> Scenario:
    sections = SCENARIOS[name] if sections is None else sections
    values = {
        "name": "planned",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": {"name": "linear", "dimension": 100, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.002, "local_steps": 3, "batch_size": 8},
        **sections,
        "server": {"rounds": 25, "evaluate_every": 25, **sections["server"]},
    }
    return validate(Scenario, values, "planned")


def count(rows: pd.DataFrame, rounds: int, column: str = "round") -> list[int]:
    """The number of rows of every round."""
    return [int((rows[column] == number).sum()) for number in range(1, rounds + 1)]


def assert_the_calls_are_the_same(account: Account, group: GroupPlan) -> None:
    rounds, clients = len(account.rounds), account.clients.set_index("client")["group"]
    answers = account.answers[account.answers["client"].map(clients) == group.name]
    accepted = answers[answers["decision"] != "decline"]
    assert count(answers, rounds) == group.called.tolist()
    assert count(accepted, rounds) == group.accepted.tolist()
    assert count(answers[answers["decision"] == "accept"], rounds) == group.delivered.tolist()
    for reason, counts in group.reasons.items():
        assert count(answers[answers["reason"] == reason.value], rounds) == counts.tolist()


def assert_the_account_says_the_same(account: Account, group: GroupPlan) -> None:
    rounds, counting = len(account.rounds), group.counting
    assert counting is not None
    clients = account.clients.set_index("client")["group"]
    said = account.contributions[account.contributions["client"].map(clients) == group.name]
    assert_the_calls_are_the_same(account, group)
    folded = said[said["outcome"] == "folded"]
    assert count(folded, rounds) == counting.folded.tolist()
    assert count(folded[folded["staleness"] > 0], rounds) == counting.stale.tolist()
    assert count(folded[folded["staleness"] == 0], rounds) == group.in_time.tolist()
    staleness = folded.groupby("round")["staleness"]
    for aggregate, values in (("sum", counting.staleness), ("max", counting.largest)):
        found = staleness.agg(aggregate).reindex(range(1, rounds + 1), fill_value=0)
        assert found.tolist() == values.tolist()
    late = said[said["outcome"] == "late"]
    too_stale = late[late["reason"] == "stale"]
    assert count(late[late["reason"] == "deadline"], rounds, "call_round") == group.late.tolist()
    assert count(too_stale, rounds, "call_round") == counting.too_stale.tolist()
    left = said[(said["outcome"] == "dropped") & (said["reason"] == "round closed")]
    assert len(left) == counting.open
    assert not (said["outcome"] == "refused").any()


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_plan_says_what_the_ledger_says(tmp_path: Path, name: str) -> None:
    read = scenario(name)
    found = plan(read)
    assert found.exact
    assert found.versions is not None
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        rounds = account.rounds
        assert rounds["scenario_s"].tolist() == found.times_s.tolist()
        assert rounds["version"].tolist() == found.versions.tolist()
        assert rounds["next_s"].iloc[-1] == found.end_s
        for group in found.groups:
            assert_the_account_says_the_same(account, group)


MODELLED: dict[str, dict[str, Any]] = {
    "over-selection": {
        "server": {
            "deadline_s": 6.0,
            "selection": {"kind": "uniform", "k": 3, "over_selection": 1.5},
        },
        "groups": [QUICK, ABSENT],
    },
    "drop-outs": {"server": {"deadline_s": 9.0}, "groups": [DROPPING, ABSENT]},
    "without a deadline": {"server": {}, "groups": [DROPPING, ABSENT]},
    "a shared link": {"server": {"deadline_s": 4.0, "goal": 4}, "groups": [QUICK, VALLEY]},
    "phones": {
        "clock": {"kind": "modelled", "round_s": 600.0, "starts_at_h": 20},
        "server": {"rounds": 40, "deadline_s": 3000.0, "goal": 3},
        "groups": [PHONES, {**QUICK, "count": 1}],
    },
    "jitter": {
        "server": {"mode": {**AT_FINISH, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [QUICK, {**VALLEY, "link": {**VALLEY["link"], "jitter": "300 ms"}}],
    },
    "a link of two groups": {
        "server": {"mode": {**AT_FINISH, "max_staleness": 2}, "deadline_s": 6.0},
        "groups": [
            {
                **QUICK,
                "count": 2,
                "devices_per_process": 1,
                "shared_link": {"name": "region"},
            },
            {**VALLEY, "shared_link": {**VALLEY["shared_link"], "name": "region"}},
        ],
    },
    "opportunistic": {
        "server": {"mode": OPPORTUNISTIC, "goal": 4, "deadline_s": 9.0},
        "groups": [QUICK, ABSENT],
    },
    "opportunistic over a shared link": {
        "server": {"mode": OPPORTUNISTIC, "deadline_s": 9.0},
        "groups": [QUICK, VALLEY],
    },
    "buffered": {"server": {"mode": BUFFERED}, "groups": [QUICK, ABSENT]},
}


def newest_model(run: Path) -> str:
    """The SHA-256 of the newest version."""
    with closing(sqlite3.connect(run / LEDGER)) as ledger:
        query = "SELECT sha256 FROM versions ORDER BY version DESC LIMIT 1"
        return str(ledger.execute(query).fetchone()[0])


KILLS = KillAt("server", "round_opened", 4), KillAt("server", "received", 9)


def modelled(name: str) -> Scenario:
    return scenario(name, {"clock": {"kind": "modelled", "round_s": 4.0}, **MODELLED[name]})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(MODELLED))
def test_the_plan_knows_the_times_of_rounds_that_last_as_long_as_their_work(
    tmp_path: Path, name: str
) -> None:
    read = modelled(name)
    found = plan(read)
    assert found.exact
    assert len(set(np.diff(found.times_s))) > 2, "rounds differ in length"
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        rounds = account.rounds
        assert rounds["scenario_s"].tolist() == found.times_s.tolist()
        assert rounds["next_s"].iloc[-1] == found.end_s
        for group in found.groups:
            assert_the_calls_are_the_same(account, group)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(MODELLED))
def test_a_run_that_is_killed_has_the_same_rounds_at_the_same_times(
    tmp_path: Path, name: str
) -> None:
    read = modelled(name)
    for folder, kills in (("whole", ()), ("killed", KILLS)):
        assert simulate_run(read, tmp_path / folder, kills) == "completed"
    with Account(tmp_path / "whole") as whole, Account(tmp_path / "killed") as killed:
        assert killed.run.incarnation == 3
        times = ["scenario_s", "next_s", "folded", "version"]
        assert killed.rounds[times].equals(whole.rounds[times])
    assert newest_model(tmp_path / "killed") == newest_model(tmp_path / "whole")


def total(name: str, attribute: str) -> int:
    groups = plan(scenario(name)).groups
    return sum(int(np.sum(getattr(group.counting, attribute))) for group in groups)


def test_the_scenarios_have_what_they_are_about() -> None:
    """Each of these could be the same in plan and ledger because it never happens."""
    assert total("too stale", "too_stale") > 3
    assert sum(int(group.late.sum()) for group in plan(scenario("expired")).groups) > 3
    assert total("a gap between rounds", "stale") > 3
    for name in ("few take part", "too few for the rule"):
        versions = plan(scenario(name)).versions
        assert versions is not None
        assert 0 < versions[-1] < len(versions)
    assert total("phones", "folded") > 40
    shared = plan(scenario("a shared link and a deadline")).groups
    assert sum(int(group.late.sum()) for group in shared[1:]) > 3
    assert total("a shared link and rounds", "stale") > 3


def test_shared_links_are_those_of_a_simulation_in_tiny_steps(tmp_path: Path) -> None:
    """The calls of a run, with the moments at which their work ended, against the same calls in a
    simulation that knows all of them from the beginning."""
    read = scenario("a shared link")
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        answers = account.answers.merge(account.rounds[["round", "scenario_s"]], on="round")
        end_s = float(account.rounds["next_s"].iloc[-1])
    answers = answers[(answers["decision"] == "accept") & answers["client"].str.contains("valley")]
    _, (valley, residents) = by_group(read, population(read))
    members = members_of(read, valley, residents)
    lives = GroupLives.of(read, valley, life_of(read, valley), members, Learning.of(read))
    train_s = dict(zip(lives.clients, lives.effort.train_s.tolist(), strict=True))
    lines = {member.client: member.line for member in lives.members}
    rows: list[Any] = list(answers.itertuples())
    starts = [Start(f"{r.client} {r.round}", r.scenario_s, train_s[r.client]) for r in rows]
    sizes = lives.effort.bytes_down, lives.effort.bytes_up
    by_call = {start.client: lines[start.client.split()[0]] for start in starts}
    ends = stepped(valley.shared_line(4), by_call, starts, sizes)
    ended = [row for row in rows if row.scenario_s + row.modelled_s <= end_s]
    assert len(ended) > 20
    for row in ended:
        assert row.scenario_s + row.modelled_s == pytest.approx(
            ends[f"{row.client} {row.round}"], abs=0.1
        )
    alone = [train_s[r.client] + lines[r.client].transfer_s(*sizes) for r in ended]
    slowed = [row.modelled_s > 1.2 * least for row, least in zip(ended, alone, strict=True)]
    assert sum(slowed) > 10, "transfers overlap"


def test_the_order_of_arrival_is_not_foreseen() -> None:
    read = validate(
        Scenario,
        {
            "name": "wall",
            "clock": {"kind": "wall"},
            "task": "linear",
            "server": {"rounds": 2, "deadline_s": 5.0, "mode": BUFFERED},
            "groups": [QUICK],
        },
        "wall",
    )
    with pytest.raises(ConfigError, match="the order in which they arrive, which a plan cannot"):
        plan(read)


def test_a_run_that_would_make_no_version_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "MOST_BARREN", 20)
    never = {**SLOW, "availability": {"kind": "bernoulli", "probability": 1e-12}}
    read = validate(
        Scenario,
        {"name": "never", "task": "linear", "server": {"rounds": 3, "mode": BUFFERED},
         "groups": [never]},
        "never",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="20 rounds in a row would make no version"):
        plan(read)

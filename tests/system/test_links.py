"""Fleets behind gateways: planned and run alike, with slots over crashes, and links that fail."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests.recorded_fleet import recorded_groups

from muster.common import seeds
from muster.common.errors import ConfigError, RunFailed
from muster.common.events import RoundCommitted
from muster.emulator import Run, run
from muster.emulator.following.run_progress import RunProgress
from muster.emulator.gateway.config import GatewayProcess
from muster.emulator.planning import plan
from muster.emulator.report import link_sections, write_report
from muster.emulator.run_audit.auditing import audit
from muster.emulator.run_folder.folder import LEDGER
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.journal_recovery import missing_events
from muster.server.account.ledger import Ledger

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

SOON_S = 0.005
"""Seconds between two reads of the journal in runs of which this file kills processes. With the
default, it could learn of a certain round when a fast run has already ended."""

pytestmark = pytest.mark.usefixtures("nothing_left")

DIGITS = {"name": "digits", "model": "mlp", "hidden": [100]}
GROUPS: list[dict[str, Any]] = [
    {
        "name": "country",
        "count": 4,
        "device": {"profile": "phone"},
        "participation": {"drop_out": 0.1, "battery_min": 0.0},
        # As slow as in life in the model of it; the test has no time for more of that over TCP.
        "link": {"profile": "3g", "up": "4 Mbit/s", "down": "8 Mbit/s", "rtt": "20 ms"},
        "shared_link": {"up": "6 Mbit/s"},
    },
    {"name": "town", "count": 2, "link": {"profile": "wifi"}},
    {"name": "office", "count": 1, "link": {"profile": "fixed"}},
]


def decisions(done: Run) -> pd.DataFrame:
    columns = ["round", "client", "decision", "reason", "state"]
    return done.ledger.answers[columns].astype(object).where(lambda f: f.notna(), None)


def linked(scenario: MakeScenario, **server: Any) -> Scenario:
    settings = {"rounds": 12, "evaluate_every": 12, **server}
    return scenario(task=DIGITS, server=settings, groups=GROUPS, clock={"round_s": 900})


def test_a_fleet_behind_gateways_does_what_its_plan_says(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    # Of the country's phones up to four share the uplink: with all of them it is too slow.
    planned = plan(linked(scenario, deadline_s=0.27))
    country = planned.groups[0]
    assert 0 < country.late.sum() < country.delivered.sum()
    done = run(linked(scenario, deadline_s=0.27, minimum=1), out=tmp_path / "run")
    sent = done.ledger.contributions
    of_country = sent[sent["client"].str.startswith("country")]
    assert (of_country["outcome"] == "late").sum() == country.late.sum()
    assert (of_country["outcome"] == "folded").sum() == (country.delivered - country.late).sum()
    assert (sent.query("outcome == 'late'")["reason"] == "deadline").all()

    # Nothing but the ledger is needed to tell of rounds.
    with closing(Ledger(done.folder / LEDGER)) as ledger:
        told = [
            event.fields()
            for _, event in missing_events(done.folder / "none", ledger)
            if isinstance(event, RoundCommitted)
        ]
    for event, again in zip(done.ledger.events("round_committed"), told, strict=True):
        assert again == {key: event[key] for key in again}

    transfers = done.ledger.transfers
    assert set(transfers["direction"]) == {"up", "down"}
    assert len(transfers) == 2 * len(sent.query("outcome in ('folded', 'late')"))
    assert (transfers[["wait_s", "seconds"]] >= 0).all().all()
    assert (transfers["ending"] == "complete").all()
    assert list(done.ledger.events("traffic"))
    write_report(done.folder, "png")
    assert (done.folder / "figures/waits.png").is_file()


def test_everybody_counts_the_same_bytes_also_of_updates_that_came_too_late(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    # Four updates of 39,040 bytes take 2.1 s: in every round at least one of them is too late.
    groups = [{"name": "dev", "count": 4, "shared_link": {"up": "600 kbit/s"}}]
    planned = scenario(
        task={**DIGITS, "hidden": [130]},
        server={
            "rounds": 3,
            "deadline_s": 2.0,
            "evaluate_every": 3,
            "selection": {"kind": "uniform", "k": 3, "over_selection": 1.5},
        },
        groups=groups,
        clock={"kind": "wall"},
    )
    standing = RunProgress()
    done = run(planned, out=tmp_path / "run", show=standing.happen)
    account, summary = done.ledger, done.summary
    assert summary["outcomes"]["late"] >= 3

    # What was called for has its transfers, with what really travelled.
    accepted = account.answers.query("decision == 'accept'")[["round", "client"]]
    assert len(accepted) == 12
    moved = account.transfers.groupby(["round", "client", "direction"])["bytes"].sum().unstack()
    assert set(moved.index) == set(accepted.itertuples(index=False, name=None))
    assert (moved["down"] == 39_040).all()
    assert (moved["up"] <= 39_040).all()
    updates = account.contributions.groupby(["round", "client"])[["bytes_up", "bytes_down"]].sum()
    assert updates.to_numpy().tolist() == moved[["up", "down"]].to_numpy().tolist()

    # The progress, the journal, the summary and the report.
    for way in ("up", "down"):
        total = summary[f"bytes_{way}"]
        assert total == moved[way].sum() == getattr(standing, f"bytes_{way}")
        told = account.events("round_committed", "ended")
        assert total == sum(event[f"bytes_{way}"] for event in told)
        assert total == account.client_totals[f"bytes_{way}"].sum()
        assert total == summary["transfers"]["dev"][way]["bytes"]
        # Of each device two connections, and of each of 24 transfers headers, frames and answers.
        passed = account.traffic[f"bytes_{way}"].sum()
        assert 0 <= passed - total <= 8 * 1024 + 24 * 1024
    waited = link_sections.waits(account, summary)
    assert waited is not None
    assert waited.table is not None
    assert {row[0] for row in waited.table.rows} == set(account.clients["client"])


def test_links_change_when_updates_come_and_not_what_is_learned(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    linked_run = run(linked(scenario, rounds=4), out=tmp_path / "linked")
    without = [{k: v for k, v in g.items() if "link" not in k} for g in GROUPS]
    plain = scenario(
        task=DIGITS, server={"rounds": 4, "evaluate_every": 12}, groups=without,
        clock={"round_s": 900},
    )  # fmt: skip
    plain_run = run(plain, out=tmp_path / "plain")
    assert linked_run.summary["model_sha256"] == plain_run.summary["model_sha256"]


class Killer:
    """Kills the server and devices with SIGKILL at some rounds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.victims = {5: "server", 9: "sub-0001", 14: "server", 18: "hit-0000"}

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] in self.victims:
            name = self.victims.pop(event["round"])
            for process in Path("/proc").iterdir():
                try:
                    log = os.readlink(process / "fd/2")
                except OSError:
                    continue
                if log == str(self._folder / "logs" / f"{name}.log"):
                    command = (process / "cmdline").read_bytes()
                    if name != "server" or b"muster.server\0" in command:
                        os.kill(int(process.name), signal.SIGKILL)


def test_groups_that_share_a_recorded_link_have_one_gateway_and_are_run_as_planned(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    groups = recorded_groups(tmp_path / "files")
    planned = scenario(groups=groups, server={"rounds": 4, "deadline_s": 30.0})
    done = run(planned, out=tmp_path / "run")
    found = {group.name: group for group in plan(planned).groups}
    answers = done.ledger.answers
    for name, of_plan in found.items():
        accepted = answers[
            answers["client"].str.startswith(name) & (answers["decision"] == "accept")
        ]
        by_round = accepted.groupby("round").size().reindex(range(1, 5), fill_value=0)
        assert list(by_round) == list(of_plan.accepted)
    assert {event["group"] for event in done.ledger.events("traffic")} == {"region"}
    in_cells = done.ledger.cell_traffic
    assert set(in_cells["cell"]) == {"north"}
    assert 0 < in_cells["bytes_up"].sum() < done.ledger.traffic["bytes_up"].sum()
    assert audit(done.folder).agrees


def test_slots_are_granted_as_planned_whoever_dies(scenario: MakeScenario, tmp_path: Path) -> None:
    available = {"kind": "bernoulli", "probability": 0.7}
    groups = [
        {
            "name": name,
            "count": 3,
            "availability": available,
            "shared_link": {"slots": 2, "overflow": overflow},
        }
        for name, overflow in (("sub", "subset"), ("hit", "collide"))
    ]
    groups.append({"name": "one", "count": 2, "shared_link": {"slots": 1}})
    sliced = scenario(
        server={"rounds": 24, "evaluate_every": 24}, groups=groups, launch={"restarts": 20}
    )
    calm = run(sliced, out=tmp_path / "calm")
    killer = Killer(tmp_path / "killed")
    done = run(sliced, out=tmp_path / "killed", show=killer.show, show_every_s=SOON_S)
    assert not killer.victims
    assert "server" in [event["process"] for event in done.ledger.events("died")]
    assert done.summary["model_sha256"] == calm.summary["model_sha256"]
    pd.testing.assert_frame_equal(decisions(done), decisions(calm))
    answers = calm.ledger.answers
    taken = answers[answers["reason"] == "slot taken"]["client"]
    assert {client[:3] for client in taken} == {"sub", "hit"}
    planned = {group.name: group for group in plan(sliced).groups}
    for name, group in planned.items():
        accepted = answers.query("decision == 'accept'")["client"].str.startswith(name)
        assert accepted.sum() == group.accepted.sum()
    waits = calm.ledger.transfers
    assert (waits[waits["client"].str.startswith("one")]["wait_s"] > 0).any()


@pytest.mark.soak
def test_links_that_are_not_what_was_asked_for_end_the_run_before_it_begins(
    scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"name": "dev", "count": 1, "link": {"up": "2 Mbit/s", "rtt": "10 ms"}}
    planned = scenario(groups=[group], verify=True)
    done = run(planned, out=tmp_path / "run")
    (verified,) = done.ledger.events("verified")
    assert verified["ok"]

    def slower(config: GatewayProcess) -> str:
        # A gateway that does not do what it is told, as a bug of ours might have it.
        shapes = [
            each.model_copy(update={"shape": each.shape.model_copy(update={"up_bps": 1e6})})
            for each in config.devices
        ]
        return config.model_copy(update={"devices": shapes}).model_dump_json(exclude_none=True)

    monkeypatch.setattr(GatewayProcess, "to_json", slower)
    with pytest.raises(RunFailed, match="links do not match their settings"):
        run(planned, out=tmp_path / "slower")


def test_what_links_cannot_do_is_refused(scenario: MakeScenario) -> None:
    with pytest.raises(ConfigError, match="with a unit, \"6 Mbit/s\"; found 'fast'"):
        scenario(groups=[{"name": "d", "count": 1, "link": {"up": "fast"}}])
    with pytest.raises(ConfigError, match="verify: no group has a link"):
        scenario(verify=True)
    with pytest.raises(ConfigError) as error:
        scenario(
            clock={"kind": "scaled", "scale": 10},
            server={"rounds": 2, "deadline_s": 5},
            groups=[
                {"name": "a", "count": 4, "devices_per_process": 2, "link": {"profile": "4g"}},
                {"name": "b", "count": 1, "shared_link": {"slots": 1}},
                {"name": "c", "count": 1, "shared_link": {"overflow": "subset"}},
            ],
        )
    for sentence in (
        "clock.scale: 10, but links are real and run in wall time",
        "groups[0].devices_per_process: 2 devices of a process share one connection",
        "groups[1].shared_link.slots: slots need clock.kind = 'rounds'",
        "groups[2].shared_link.overflow: 'subset' needs slots",
    ):
        assert sentence in str(error.value)


def kill_the_gateway(folder: Path) -> bool:
    """Kill the process that writes the log of the group's gateway; whether there was one."""
    for process in Path("/proc").iterdir():
        try:
            log = os.readlink(process / "fd/2")
        except OSError:
            continue
        if log == str(folder / "logs/gateway-dev.log"):
            os.kill(int(process.name), signal.SIGKILL)
            return True
    return False


def test_a_gateway_that_dies_ends_the_run_by_name(scenario: MakeScenario, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 3:
            kill_the_gateway(folder)

    planned = scenario(
        server={"rounds": 2000, "evaluate_every": 2000},
        groups=[{"name": "dev", "count": 2, "link": {"profile": "unshaped"}}],
    )
    with pytest.raises(RunFailed, match="gateway-dev ended unexpectedly by signal 9"):
        run(planned, out=folder, show=kill)


def test_gateways_that_die_come_back_where_they_were(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    """Slots make it hard: what the devices have said of a round must not be forgotten."""
    folder, kills, draws = tmp_path / "run", 5, seeds.stream(1, "kills", "gateway")
    waits = [int(draws.integers(3, 60)) for _ in range(kills)]
    killed: list[int] = []
    died: list[dict[str, Any]] = []

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "died":
            died.append(event)
        # Several events may be read at once: a gateway that is dying must not be killed again.
        if event["event"] in ("started", "died") or len(died) < len(killed):
            return
        if waits:
            waits[0] -= 1
            # The one that was killed last may not have been started again yet.
            if waits[0] <= 0 and kill_the_gateway(folder):
                killed.append(waits.pop(0))

    group = {
        "name": "dev",
        "count": 4,
        "link": {"profile": "unshaped"},
        "shared_link": {"slots": 2, "overflow": "subset"},
    }
    planned = scenario(
        server={"rounds": 80, "evaluate_every": 80},
        groups=[group],
        launch={"restarts": kills},
    )
    undisturbed = run(planned, out=tmp_path / "undisturbed")
    done = run(planned, out=folder, show=kill, show_every_s=SOON_S)
    assert not waits, "the run was over before the killer was done"
    assert [event["process"] for event in done.ledger.events("died")] == ["gateway-dev"] * kills
    assert done.summary["model_sha256"] == undisturbed.summary["model_sha256"]
    assert set(done.ledger.rounds["folded"]) == {2}

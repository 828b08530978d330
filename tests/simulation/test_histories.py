"""Histories that must not violate anything, and how they are reproduced."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.client.device.memory import Memory, StoredUpdate
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exchange import Call
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.asynchronous_fleets import FLEETS
from muster.simulation.disk import reading
from muster.simulation.drawn_fleets import LARGE
from muster.simulation.faults import (
    Break,
    ClockJump,
    DiskFull,
    Fault,
    GatewayDown,
    Kill,
    KillAt,
    Pause,
    PowerCut,
    RevokeAt,
    Rogue,
    RogueKind,
    Written,
    drawn,
)
from muster.simulation.fleet import scenarios
from muster.simulation.history import RAN_DRY, History
from muster.simulation.programs import programs_of
from muster.simulation.search import HISTORIES_OF_A_FLEET, HistoryPlan, Simulator

HISTORIES = int(os.environ.get("MUSTER_HISTORIES", "60"))
"""Random histories that are played; other seeds than those of `make simulate`."""

FLEETS_OF_TESTS = [*sorted(scenarios()), *(f"fleet-{number}" for number in range(6))]


@pytest.mark.timeout(1500)
def test_random_histories_violate_nothing() -> None:
    command = [sys.executable, "-m", "muster.simulation"]
    played = subprocess.run(
        [*command, "--number", str(HISTORIES), "--first", "1000000000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.rstrip().endswith("; 0 violate")


def test_a_command_that_was_interrupted_says_how_many_histories_it_has_played(
    tmp_path: Path,
) -> None:
    probes = tmp_path / "probes.md"
    command = [sys.executable, "-m", "muster.simulation", "--number", "1000000", "--processes", "1"]
    # Programs that are started in the background ignore Ctrl-C, and so would this one.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        started = subprocess.Popen(
            [*command, "--probes", str(probes)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # all of its processes are interrupted, as from a terminal
        )
    finally:
        signal.signal(signal.SIGINT, usual)
    with started as playing:
        assert playing.stdout is not None
        assert playing.stdout.readline() == "1000000 histories are to be played\n"
        os.killpg(playing.pid, signal.SIGINT)
        said = playing.stdout.read()
    assert playing.returncode == 128 + signal.SIGINT
    assert "interrupted: " in said
    assert " of 1000000 histories were played" in said
    assert "0 violate" in said
    assert probes.read_text(encoding="utf-8").startswith("# Probes")


def test_every_sort_of_fault_is_drawn(simulated: Simulator) -> None:
    reference = simulated.reference("large")
    more = 3, reference.clients, reference.revocable
    kinds: list[tuple[RogueKind, ...]] = [("forged",), (), (), ()]
    faults = [
        f for n in range(200) for f in drawn(Random(n), reference.extent, kinds[n % 4], *more)
    ]
    turns = [f.at if isinstance(f, RevokeAt) else f for f in faults]
    assert {bool(turn.client) for turn in turns if isinstance(turn, KillAt)} == {False, True}
    assert {type(fault).__name__ for fault in faults} == {
        "Break",
        "ClockJump",
        "DiskFull",
        "GatewayDown",
        "Kill",
        "KillAt",
        "Pause",
        "PowerCut",
        "RevokeAt",
        "Rogue",
        "ShortMessages",
    }


def test_every_single_fault_of_the_smallest_fleet(simulated: Simulator) -> None:
    violations = {
        plan.faults: outcome.violations
        for plan in simulated.every_plan("inline", pairs=False)
        if (outcome := simulated.play(plan)).violations
    }
    assert not violations


@pytest.mark.parametrize("scenario", ["inline", "masks"])
def test_devices_that_a_killed_server_called_ahead_are_called_for_both_rounds(
    simulated: Simulator, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the server sent before its death arrives: calls for a round after one that is in no
    ledger."""
    called: set[bool] = set()
    update_for = Memory.update_for

    def noted(memory: Memory, call: Call) -> StoredUpdate | None:
        called.add(any(held.round > call.key.round for held in memory.held))
        return update_for(memory, call)

    monkeypatch.setattr(Memory, "update_for", noted)
    for step in range(60, 80):
        assert not simulated.play(
            HistoryPlan(scenario, 0, (Kill("server", step, sent=True),))
        ).violations
    assert called == {False, True}


def test_the_end_of_a_run_is_found_in_a_journal_that_a_power_cut_shortened(
    simulated: Simulator,
) -> None:
    """The journal of a resumed run may become shorter than it was when the run was resumed."""
    for step in range(240, 420, 6):
        plan = HistoryPlan("inline", step, (DiskFull("ledger", 6), PowerCut(step)))
        assert not simulated.play(plan).violations, plan


@pytest.mark.parametrize(("scenario", "step"), [("masks", 160), ("private-devices", 179)])
def test_the_model_may_differ_if_a_power_cut_takes_what_compression_left_out(
    simulated: Simulator, scenario: str, step: int
) -> None:
    assert not simulated.play(HistoryPlan(scenario, step, (PowerCut(step),))).violations


@pytest.mark.parametrize(("scenario", "step"), [("inline", 5), ("wall-finish", 11)])
def test_a_version_that_waited_for_an_evaluation_that_died_is_evaluated_in_the_next_run(
    simulated: Simulator, scenario: str, step: int
) -> None:
    outcome = simulated.play(HistoryPlan(scenario, 0, (Kill("evaluation", step),)))
    assert ["the evaluation process ended" in failure for failure in outcome.failures] == [True]
    assert not outcome.violations


def test_a_fault_may_strike_before_anything_is_started(simulated: Simulator) -> None:
    plan = HistoryPlan("inline", 0, (GatewayDown("dev-0000", 0, 0.5),))
    assert not simulated.play(plan).violations


def test_faults_strike(simulated: Simulator) -> None:
    """A history with faults is another than one without."""
    calm = simulated.play(HistoryPlan("large", 0, ()), traced=True)
    for fault in (Break(20), Kill("server", 60), PowerCut(200), Rogue("header")):
        outcome = simulated.play(HistoryPlan("large", 0, (fault,)), traced=True)
        assert outcome.trace != calm.trace
        assert not outcome.violations


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scenario", FLEETS_OF_TESTS)
def test_a_full_disk_is_not_blamed_on_a_process(simulated: Simulator, scenario: str) -> None:
    for write in (1, 2, 3):
        plan = HistoryPlan(scenario, write, (DiskFull("upload", write),))
        assert not simulated.play(plan).violations, plan


@pytest.mark.sampled(8)
@pytest.mark.parametrize("scenario", FLEETS_OF_TESTS)
def test_a_server_that_was_stopped_blames_no_device(simulated: Simulator, scenario: str) -> None:
    """The longest pause also ends connections, and is longer than `server.stall_s`."""
    for step, seconds in ((100, 12.0), (150, 30.0), (200, 150.0)):
        plan = HistoryPlan(scenario, step, (Pause("server", step, seconds),))
        outcome = simulated.play(plan)
        assert not outcome.violations, plan
        assert not outcome.failures, plan


@pytest.mark.parametrize(
    ("what", "write", "reason"),
    [
        ("ledger", 3, "the ledger could not be read or written: database or disk is full"),
        ("model", 1, "No space left on device"),
        ("upload", 1, "No space left on device"),
        ("journal", 1, "No space left on device"),
    ],
)
def test_a_full_disk_ends_the_run_with_the_systems_reason_and_nothing_is_lost(
    simulated: Simulator, what: Written, write: int, reason: str
) -> None:
    outcome = simulated.play(HistoryPlan("large", 0, (DiskFull(what, write),)))
    # With a full journal only the exit status and the log can say it; see the invariants.
    assert [reason in failure for failure in outcome.failures] == [True] or (
        what == "journal" and outcome.failures == ["the journal does not say"]
    )
    assert outcome.status == "completed", "it went on when there was room again"
    assert not outcome.violations


def test_a_disk_without_room_for_what_the_server_remembers_ends_the_run(
    simulated: Simulator,
) -> None:
    for write in (0, 3, 7):
        outcome = simulated.play(HistoryPlan("mifa", 0, (DiskFull("memory", write),)))
        assert ["No space left on device" in failure for failure in outcome.failures] == [True]
        assert outcome.status == "completed", "it went on when there was room again"
        assert not outcome.violations


@pytest.mark.parametrize("write", [0, 3, 5])
def test_estimates_of_a_round_that_was_not_committed_are_not_entered_twice(
    simulated: Simulator, write: int
) -> None:
    outcome = simulated.play(HistoryPlan("feduca", 0, (DiskFull("memory", write),)))
    assert ["No space left on device" in failure for failure in outcome.failures] == [True]
    assert outcome.status == "completed", "it went on when there was room again"
    assert not outcome.violations


@pytest.mark.parametrize("write", [0, 2])
def test_a_rational_device_that_lost_its_update_values_the_model_again(
    simulated: Simulator, write: int
) -> None:
    plan = HistoryPlan("rational-phones", 62, (DiskFull("memory", write),))
    assert not simulated.play(plan).violations


@pytest.mark.parametrize("scenario", sorted(FLEETS))
def test_a_server_that_is_killed_between_any_two_rounds_takes_the_same_course(
    simulated: Simulator, scenario: str
) -> None:
    """What a round does depends on what earlier rounds have learned of absent devices and of
    transfers under way, and a restarted server knows only what the ledger has."""
    steps = simulated.reference(scenario).extent.processes["server"]
    for step in range(steps // 10, steps, steps // 20):
        plan = HistoryPlan(scenario, 0, (Kill("server", step),))
        assert not simulated.play(plan).violations, plan


@pytest.mark.parametrize("scenario", ["inline", "partial-sums", "large", "wall-partial-sums"])
def test_a_run_goes_on_without_a_process_that_is_revoked_at_any_turn(
    simulated: Simulator, scenario: str
) -> None:
    reference = simulated.reference(scenario)
    for process in reference.revocable[:2]:
        for event in ("round_opened", "received", "round_committed"):
            plan = HistoryPlan(scenario, 0, (RevokeAt(KillAt(process, event, 1)),))
            outcome = simulated.play(plan)
            assert (outcome.status, outcome.violations, outcome.failures) == ("completed", [], [])


def test_a_device_that_was_revoked_takes_part_again_when_the_run_is_resumed(
    simulated: Simulator, tmp_path: Path
) -> None:
    """A run that is resumed, here after a full disk, draws new credentials."""
    faults = RevokeAt(KillAt("dev-0001", "round_opened", 1)), DiskFull("ledger", 5)
    history = History(simulated.reference("inline").programs, tmp_path, 0, faults)
    outcome = history.play()
    assert ["disk is full" in failure for failure in outcome.failures] == [True]
    assert (outcome.status, outcome.violations) == ("completed", [])
    with closing(reading(tmp_path / "ledger.sqlite")) as ledger:
        counted = ledger.execute(
            "SELECT call_round FROM contributions WHERE outcome = 'folded' AND client = 'dev-0001'"
        ).fetchall()
    history.close()
    assert counted == [(3,)]


@pytest.mark.parametrize("process", ["server", "dev-0001"])
@pytest.mark.parametrize("scenario", ["secure-sums", "noisy-secure-sums", "wall-secure-sums"])
def test_a_process_that_is_killed_during_secure_sums_changes_nothing(
    simulated: Simulator, scenario: str, process: str
) -> None:
    steps = simulated.reference(scenario).extent.processes[process]
    for step in range(steps // 10, steps, steps // 10):
        plan = HistoryPlan(scenario, 0, (Kill(process, step),))
        assert not simulated.play(plan).violations, plan


def pairs_of_kills(simulated: Simulator, every: int) -> Iterator[tuple[HistoryPlan, list[str]]]:
    """One of `every` pairs of kills of a secure sum, of the first and of the second kill, and one
    of `every` single ones; each with what it violates."""
    _, single = simulated.with_one_more_kill(HistoryPlan("one-secure-sum", 0, ()))
    for plan in single[::every]:
        outcome, two = simulated.with_one_more_kill(plan)
        yield plan, outcome.violations
        for pair in two[::every]:
            yield pair, simulated.play(pair).violations


def test_two_kills_during_a_secure_sum_change_nothing(simulated: Simulator) -> None:
    assert not [found for found in pairs_of_kills(simulated, 15) if found[1]]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_every_pair_of_kills_during_a_secure_sum_changes_nothing(simulated: Simulator) -> None:
    found = list(pairs_of_kills(simulated, 1))
    assert len(found) > 3000
    assert not [(plan, violated) for plan, violated in found if violated]


@pytest.mark.parametrize("scenario", ["partial-sums", "wall-partial-sums", "large-partial-sums"])
def test_a_process_that_loses_held_updates_while_another_is_awaited_trains_again(
    simulated: Simulator, scenario: str
) -> None:
    """It has enrolled again before the server asks it for the sum, so the request brings no model
    and it has to fetch one, also if models travel inside calls."""
    awaited = Pause("dev-0000..dev-0001", 10, 4.0)
    for step in range(14, 32):
        plan = HistoryPlan(scenario, 0, (awaited, Kill("dev-0002..dev-0003", step)))
        assert not simulated.play(plan).violations, plan


@pytest.mark.parametrize(
    "mode",
    [
        {"kind": "opportunistic", "max_staleness": 20},
        {"kind": "buffered", "k": 1, "concurrency": 4, "calls_at": "finish"},
    ],
)
def test_no_call_to_a_busy_pack_is_lost_if_work_outlives_its_round(
    mode: dict[str, Any], tmp_path: Path
) -> None:
    """Calls of later rounds, to other devices of the pack, come while a call waits in the queue."""
    values = {
        "name": "packs",
        "clock": {"kind": "wall", "round_s": 1.0},
        "task": {"name": "linear", "dimension": LARGE, "examples_per_client": 4},
        "training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
        "server": {"rounds": 12, "deadline_s": 1.5, "mode": mode},
        "groups": [
            {
                "name": "dev",
                "count": 4,
                "devices_per_process": 4,
                "device": {"examples_per_s": 4},
            }
        ],
    }
    for name in ("programs", "run"):
        (tmp_path / name).mkdir()
    programs = programs_of(validate(Scenario, values, "packs"), tmp_path / "programs")
    history = History(programs, tmp_path / "run", 1)
    assert history.play().status == "completed"
    with closing(reading(tmp_path / "run/ledger.sqlite")) as ledger:
        counted = ledger.execute(
            "SELECT count(*) FROM contributions WHERE outcome = 'folded' GROUP BY client"
        ).fetchall()
    history.close()
    assert len(counted) == 4
    assert min(counted) >= (3,)


@pytest.mark.soak
@pytest.mark.parametrize("fleet", ["fleet-5000552", "fleet-5000708", "fleet-5001072"])
def test_a_fleet_whose_devices_leave_without_any_fault_is_not_played(
    simulated: Simulator, fleet: str
) -> None:
    with pytest.raises(ConfigError, match="its devices leave"):
        simulated.reference(fleet)


# Drawn once, and kept as plans, because what is drawn of a seed changes with the kinds of faults.
@pytest.mark.parametrize(
    ("seed", "faults", "status"),
    [
        # A hostile device in a fleet with few seconds between heartbeats.
        (40000161, (Rogue("unread"), ClockJump(2183, -1.0), Kill("far-0000", 82)), "completed"),
        # A model is sent again after a rule has asked for the answers.
        (40000421, (Break(146, "after"), Pause("near-0000", 27, 0.5)), "completed"),
        # A process is called for an open call of an older round, while another call waits.
        (
            40000907,
            (
                Kill("near-0000..near-0001", 62),
                Kill("server", 191),
                Break(6),
                Pause("near-0000..near-0001", 96, 5.0),
            ),
            "completed",
        ),
        # What was refused comes again after the end of its round.
        (40004044, (Break(366, "silently"), ClockJump(126, 3600.0)), "completed"),
        # A model went inside a call whose device never answers.
        pytest.param(
            40003970,
            (
                GatewayDown("near-0000", 224, 5.0),
                Break(4, "after"),
                Pause("evaluation", 4, 5.0),
                Break(27, "silently"),
            ),
            "completed",
            marks=pytest.mark.soak,
        ),
        # Rational devices leave, and too few stay for a version.
        pytest.param(
            40000505, (Break(1852), Pause("server", 524, 50.0)), RAN_DRY, marks=pytest.mark.soak
        ),
        # A goodbye comes while a device sends a heartbeat.
        (
            40005310,
            (
                Kill("near-0000..near-0001", 120),
                Pause("evaluation", 33, 5.0),
                GatewayDown("near-0000..near-0001", 518, 5.0),
            ),
            "completed",
        ),
        # Without its hostile device, too few devices are left for a version.
        pytest.param(40001072, (PowerCut(390),), "completed", marks=pytest.mark.soak),
        # Fewer devices are enrolled than a version needs.
        pytest.param(
            40002640, (Kill("near-0001", 30), Break(129)), "completed", marks=pytest.mark.soak
        ),
        # A rule has a weight for each device, and a group becomes larger.
        pytest.param(40005050, (ClockJump(41, 1.0),), "completed", marks=pytest.mark.soak),
        # An assignment ends while its update waits for room on the disk, again and again.
        (50004865, (Break(147), DiskFull("upload", 0)), "completed"),
        # A power cut takes what a device knows of its own participation, which is a covariate.
        pytest.param(
            50004310,
            (Pause("far-0001", 15, 5.0), GatewayDown("far-0000", 1559, 5.0), PowerCut(1128)),
            "completed",
            marks=pytest.mark.soak,
        ),
        # Beside a hostile device that accepts, too few honest ones stay for a version.
        pytest.param(
            71003742,
            (Rogue("header"), Kill("near-0002", 71), GatewayDown("near-0002", 1887, 0.5)),
            RAN_DRY,
            marks=pytest.mark.soak,
        ),
        # Updates come while a run fails on a full disk, and again when it is resumed.
        (72001444, (DiskFull("upload", 0),), "completed"),
        # Two rounds in one step of the clock: a device is interrupted after the same share.
        (73000095, (PowerCut(280),), "completed"),
        # The same, and the second call was repeated in a later step.
        (73001093, (KillAt("server", "round_opened", 2),), "completed"),
        # The disk has no room for the last line of the journal at first.
        (73002315, (DiskFull("journal", 3, 3),), "completed"),
        # A hostile device sends the body of its update, beside a secure sum of the others.
        (94000283, (Rogue("forged"),), "completed"),
        # Devices that download a part of the model are asked for secure sums.
        (97000510, (), "completed"),
        # A device that has neither a state nor covariates had an age of them, in wall seconds.
        (98001770, (), "completed"),
        # A power cut takes what devices keep between a padded update and its sum.
        (101000897, (PowerCut(1204),), "completed"),
        # A device that was revoked has trained in a round of which no account tells.
        (
            102000422,
            (Kill("evaluation", 14), RevokeAt(KillAt("far-0001", "received", 1))),
            "completed",
        ),
    ],
)
def test_random_histories_that_violated_something_do_so_no_more(
    simulated: Simulator, seed: int, faults: tuple[Fault, ...], status: str
) -> None:
    fleet = f"fleet-{seed // HISTORIES_OF_A_FLEET}"
    outcome = simulated.play(HistoryPlan(fleet, seed, faults))
    assert (outcome.status, outcome.violations) == (status, [])


def test_a_server_that_stops_ends_its_calls_in_the_order_in_which_they_began(
    simulated: Simulator,
) -> None:
    """A hostile device does not read, so many calls are open when the run is over."""
    faults = Rogue("unread"), Break(151), Break(301, "silently")
    plan = HistoryPlan("fleet-7100218", 71002180, faults)
    traces = [simulated.play(plan, traced=True).trace for _ in range(3)]
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.parametrize("seed", [104_001_854, 104_002_472])
def test_a_download_of_which_nothing_arrived_is_not_complete(
    simulated: Simulator, seed: int
) -> None:
    """Its last byte was sent, and lost with its connection; the device asks for all of it again."""
    assert not simulated.play(simulated.random_plan(seed)).violations

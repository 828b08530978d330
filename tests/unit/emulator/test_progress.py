"""Progress of a run: what a person sees, on a terminal and in a log."""

import io
from collections.abc import Iterator
from typing import Any

import pytest

from muster.emulator.following.progress import (
    FEW_ROUNDS,
    Lines,
    LivePanel,
    facts_of,
    progress,
    stage_of,
)
from muster.emulator.following.run_progress import RunProgress


class ManualClock:
    """Time moves only when a test moves it."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep_until(self, instant: float) -> None:
        self.time = max(self.time, instant)

    def pause(self, seconds: float) -> None:
        self.time += seconds


class Terminal(io.StringIO):
    """A terminal that counts how often it is written to."""

    writes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def committed(round: int, at: float = 0.0, **fields: Any) -> dict[str, Any]:
    told = {
        "round": round, "version": round, "outcome": "aggregated", "called": 10, "accepted": 9,
        "folded": 8, "bytes_up": 1024, "bytes_down": 1024, "seconds": 0.5,
    }  # fmt: skip
    return {"event": "round_committed", "at": at, **told, **fields}


def evaluated(round: int, loss: float | None, accuracy: float | None) -> dict[str, Any]:
    return {"event": "evaluated", "version": round, "round": round, "loss": loss,
            "accuracy": accuracy, "seconds": 0.1, "at": 0.0}  # fmt: skip


def started(rounds: int, population: int = 10, round: int = 0) -> dict[str, Any]:
    return {"event": "server_started", "run": "r", "round": round, "version": round,
            "population": population, "rounds": rounds, "bytes_up": 0, "bytes_down": 0,
            "at": 0.0}  # fmt: skip


def opened(round: int, at: float = 0.0) -> dict[str, Any]:
    return {"event": "round_opened", "round": round, "base_version": 0, "called": 10, "at": at}


def client(event: str, name: str) -> dict[str, Any]:
    return {"event": event, "client": name, "why": "it said goodbye", "at": 0.0}


def ended(status: str = "completed", detail: str = "") -> dict[str, Any]:
    return {"event": "ended", "status": status, "detail": detail, "bytes_up": 0, "bytes_down": 0,
            "at": 0.0}  # fmt: skip


def warned(round: int, by: str, warning: str) -> dict[str, Any]:
    return {"event": "warned", "round": round, "by": by, "warning": warning, "at": 0.0}


def start_up(devices: int = 10, rounds: int = 40) -> Iterator[dict[str, Any]]:
    yield started(rounds, devices)
    for number in range(devices):
        yield client("enrolled", f"phones-{number}")
        yield client("attended", f"phones-{number}")
    yield opened(1)


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


# --- plain lines ---------------------------------------------------------------------------------


def test_of_a_few_rounds_each_gets_a_line_however_fast_they_are() -> None:
    stream, rounds = io.StringIO(), FEW_ROUNDS
    lines = Lines(stream, ManualClock(), title="digits")
    for event in [*start_up(rounds=rounds), *map(committed, range(1, rounds + 1)), ended()]:
        lines.show(event)
    lines.close()
    shown = [line for line in lines_of(stream) if ": round " in line]
    assert [line.split(", ")[0] for line in shown] == [
        f"digits: round {number} of {rounds}" for number in range(1, rounds + 1)
    ]


def test_of_many_rounds_about_one_line_a_second_is_shown_and_always_the_last() -> None:
    stream, clock = io.StringIO(), ManualClock()
    lines = Lines(stream, clock, title="digits")
    for event in start_up(rounds=95):
        lines.show(event)
    for number in range(1, 96):
        clock.time += 0.125
        lines.show(committed(number))
    lines.show(ended())
    lines.close()
    rounds = [int(line.split()[2]) for line in lines_of(stream) if ": round " in line]
    assert rounds == [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 95]


def test_start_up_says_how_many_devices_have_enrolled() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits")
    for event in start_up(devices=7):
        lines.show(event)
    assert lines_of(stream) == [
        "digits: 0 of 7 devices enrolled",
        "digits: 7 of 7 devices enrolled",
    ]


def test_a_line_says_how_the_model_and_the_fleet_do() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits")
    for event in [*start_up(rounds=4), committed(1, at=7.0), evaluated(1, 2.3, 0.1)]:
        lines.show(event)
    lines.show(committed(2, at=10.0))
    assert lines_of(stream)[-1] == (
        "digits: round 2 of 4, loss 2.3 (round 1), accuracy 10.0 %, 8 of 10 folded, "
        "10 of 10 present, 4.0 KiB, about 6 s left"
    )


def test_the_final_line_has_the_outcome_and_the_totals() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits", quiet=True)
    events = [*start_up(rounds=2), committed(1), committed(2), evaluated(2, 0.5, None)]
    for event in [*events, ended("completed", "2 rounds")]:
        lines.show(event)
    lines.close()
    assert lines_of(stream) == [
        (
            "digits: completed: 2 rounds, loss 0.5, 1 s in rounds on this machine, 2.0 KiB up, "
            "2.0 KiB down"
        )
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_every_problem_is_shown_at_once(quiet: bool) -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits", quiet=quiet)
    lines.show({"event": "died", "process": "phones-3", "status": -9})
    lines.show({"event": "restarted", "process": "phones-3"})
    assert lines_of(stream) == [
        "digits: problem: phones-3 died (-9)",
        "digits: phones-3 was restarted",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_training_that_fails_is_said_once(quiet: bool) -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits", quiet=quiet)
    for round, client in [(4, "dev-0003"), (4, "dev-0001"), (5, "dev-0003")]:
        failed = {"round": round, "client": client, "error": "ValueError: no\nrows"}
        lines.show({"event": "training_failed", **failed})
    (said,) = lines_of(stream)
    assert said.startswith(
        "digits: problem: training failed on dev-0003 in round 4: ValueError: no"
    )
    assert said.endswith("rows")


@pytest.mark.parametrize("quiet", [False, True])
def test_what_an_aggregator_warns_of_is_shown_at_once(quiet: bool) -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits", quiet=quiet)
    lines.show(warned(12, "importance", "3 propensities were clipped"))
    assert lines_of(stream) == ["digits: round 12: importance: 3 propensities were clipped"]


def test_a_warning_before_the_first_round_names_no_round() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="digits")
    lines.show(warned(0, "muster", "2 of the 12 users have no device"))
    assert lines_of(stream) == ["digits: muster: 2 of the 12 users have no device"]


def test_a_run_without_an_end_says_so_and_one_that_never_began_says_nothing() -> None:
    stream = io.StringIO()
    Lines(stream, ManualClock(), title="digits").close()
    assert lines_of(stream) == []
    lines = Lines(stream, ManualClock(), title="digits", quiet=True)
    for event in [*start_up(), committed(1)]:
        lines.show(event)
    lines.close()
    assert lines_of(stream) == ["digits: no end was recorded; round 1 of 40"]
    lines.close(goes_on=True)
    assert lines_of(stream)[1:] == ["digits: the run goes on"]


def test_no_control_character_reaches_a_log() -> None:
    stream = io.StringIO()
    lines = Lines(stream, ManualClock(), title="a\x1b[2Jb")
    hostile = "\x1b]0;owned\x07\r\u202e"
    for event in [
        *start_up(),
        {"event": "died", "process": hostile, "status": hostile},
        warned(1, hostile, hostile),
        committed(1),
        ended(hostile, hostile),
    ]:
        lines.show(event)
    lines.close()
    assert all(letter.isprintable() or letter == "\n" for letter in stream.getvalue())


# --- which display -------------------------------------------------------------------------------


def test_a_terminal_gets_a_panel_and_everything_else_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    panel = progress(Terminal(), ManualClock(), title="digits")
    panel.close()
    assert isinstance(panel, LivePanel)
    assert isinstance(progress(io.StringIO(), ManualClock(), title="digits"), Lines)
    assert isinstance(progress(Terminal(), ManualClock(), title="digits", quiet=True), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress(Terminal(), ManualClock(), title="digits"), Lines)


# --- the panel -----------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_the_panel_ends_with_the_last_standing(terminal: Terminal) -> None:
    panel = LivePanel(terminal, title="digits")
    for event in [*start_up(), committed(1, at=2.0), committed(2, at=4.0), evaluated(2, 0.25, 0.5)]:
        panel.show(event)
    panel.close()
    final = terminal.getvalue()[-2500:]
    for fact in ("digits", "round 2 of 40", "loss 0.25", "accuracy 50.0 %", "8 of 10 folded",
                 "10 of 10 present", "4.0 KiB", "about 1 min 16 s left"):  # fmt: skip
        assert fact in final
    assert "no end was recorded" in final


def test_the_panel_shows_start_up_and_keeps_problems_above_it(terminal: Terminal) -> None:
    panel = LivePanel(terminal, title="digits")
    panel.show(started(40))
    for name in ("a", "b", "c"):
        panel.show(client("enrolled", name))
    panel.show({"event": "died", "process": "[bold]\x1b[2Jd[/]", "status": -9})
    panel.show(warned(12, "importance", "[red]\x1b[2Jclipped"))
    panel.close()
    shown = terminal.getvalue()
    assert "3 of 10 devices enrolled" in shown
    assert "round 12: importance: [red]?[2Jclipped" in shown
    assert "problem: [bold]?[2Jd[/] died (-9)" in shown


def test_ten_thousand_events_are_drawn_a_few_times(terminal: Terminal) -> None:
    panel = LivePanel(terminal, title="digits")
    for event in start_up(rounds=2500):
        panel.show(event)
    for number in range(1, 2501):
        for name in ("enrolled", "attended", "left"):
            panel.show(client(name, f"phones-{number}"))
        panel.show(committed(number))
    panel.close()
    assert terminal.writes < 1000


# --- the standing --------------------------------------------------------------------------------


def standing_after(*events: dict[str, Any]) -> RunProgress:
    standing = RunProgress()
    for event in events:
        standing.happen(event)
    return standing


def test_the_time_left_follows_the_pace_of_the_newest_rounds() -> None:
    standing = standing_after(started(100), committed(1, at=60.0))
    after_one = standing.left_s
    standing.happen(committed(2, at=70.0))
    assert after_one is None
    assert standing.left_s == 10.0 * 98
    for number in range(3, 53):  # one a second
        standing.happen(committed(number, at=68.0 + number))
    assert standing.left_s == pytest.approx(1.0 * 48, rel=0.01)


def test_a_restarted_server_begins_with_no_sessions_and_does_not_slow_the_pace() -> None:
    standing = standing_after(*start_up(), committed(1, at=2.0), committed(2, at=4.0))
    standing.happen({"event": "died", "process": "server", "status": -9})
    standing.happen(committed(3, at=6.0))  # what the server before it could not tell
    standing.happen(started(40, round=3))
    assert standing.starting
    assert not standing.enrolled
    assert not standing.present
    standing.happen(committed(4, at=500.0))
    standing.happen(committed(5, at=502.0))
    assert standing.left_s == 2.0 * 35


def test_uploads_of_the_open_round_count_until_the_round_does() -> None:
    received = {"event": "received", "round": 1, "client": "a", "attempt": 1, "bytes": 700}
    standing = standing_after(started(40), opened(1), received)
    assert standing.arriving == 700
    standing.happen(committed(1, bytes_up=700))
    assert (standing.arriving, standing.bytes_up) == (0, 700)


def test_the_totals_are_those_of_the_whole_run_whoever_served_it() -> None:
    standing = standing_after(started(40), committed(1, bytes_up=700, bytes_down=900))
    standing.happen({"event": "died", "process": "server", "status": -9})
    standing.happen(committed(2, bytes_up=70, bytes_down=90))  # told by the next server
    standing.happen(started(40, round=2) | {"bytes_up": 770, "bytes_down": 990})
    standing.happen(committed(3, bytes_up=7, bytes_down=9))
    standing.happen(ended() | {"bytes_up": 1000, "bytes_down": 2000})
    assert (standing.bytes_up, standing.bytes_down) == (1777, 2999)


def test_who_left_is_no_longer_present() -> None:
    standing = standing_after(*start_up(devices=3), client("left", "phones-1"))
    assert standing.present == {"phones-0", "phones-2"}


def test_a_fault_passes_its_states_from_planned_to_verified() -> None:
    run = RunProgress()
    seen = []
    common = {"fault": "outage", "number": 1, "targets": ["dev-0001"], "scenario_s": None}
    for event, more in (
        ("fault_planned", {"do": "offline", "times": 1, "round": 6}),
        ("fault_applied", {"round": 7}),
        ("fault_observed", {"round": 7, "seen": "1 × decline (offline)"}),
        ("fault_healed", {"round": 9, "with_run": False}),
        ("fault_verified", {"round": 10}),
    ):
        run.happen({"event": event, **common, **more})
        fault = run.faults["outage", 1]
        seen.append((str(fault.state), fault.acting, fault.first, fault.healed))
    assert seen == [
        ("planned", False, 6, None),
        ("applied", True, 7, None),
        ("observed", True, 7, None),
        ("healed", False, 7, 9),
        ("verified", False, 7, 9),
    ]
    assert (fault.do, fault.seen) == ("offline", "1 × decline (offline)")


def test_a_fault_acts_from_when_it_is_applied_until_it_is_healed() -> None:
    run = RunProgress()
    for number, targets in ((1, ["dev-0001"]), (2, ["dev-0001", "dev-0002"])):
        event = {"event": "fault_applied", "fault": "away", "number": number, "targets": targets}
        run.happen(event)
    assert run.acting == {("away", 1): "dev-0001", ("away", 2): "2 targets"}
    run.happen({"event": "fault_healed", "fault": "away", "number": 1, "targets": ["dev-0001"]})
    assert run.acting == {("away", 2): "2 targets"}


def test_an_occurrence_that_is_over_drops_its_targets_when_a_later_one_has_begun() -> None:
    run = RunProgress()
    fault: dict[str, Any] = {"fault": "away", "targets": ["dev-0001"], "round": 1}

    def kept() -> list[list[str]]:
        return [list(each.targets) for each in run.faults.values()]

    run.happen({"event": "fault_applied", "number": 1, **fault})
    run.happen({"event": "fault_healed", "number": 1, **fault})
    assert kept() == [["dev-0001"]]
    for number in (2, 3):
        run.happen({"event": "fault_applied", "number": number, **fault})
    assert kept() == [[], ["dev-0001"], ["dev-0001"]]
    run.happen({"event": "fault_healed", "number": 2, **fault})
    assert kept() == [[], [], ["dev-0001"]]


def waiting(*clients: str, number: int) -> dict[str, Any]:
    return {"event": "waiting", "round": 9, "clients": clients, "number": number, "at": 0.0}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (waiting("town-0001", number=1), "round 9 waits for town-0001"),
        (waiting("a", "b", number=2), "round 9 waits for a and 1 other device"),
        (waiting("a", "b", number=17), "round 9 waits for a and 16 other devices"),
    ],
)
@pytest.mark.parametrize("over", [committed(9), ended("stopped"), started(30)])
def test_a_round_that_waits_says_for_whom_until_it_goes_on(
    event: dict[str, Any], said: str, over: dict[str, Any]
) -> None:
    state = RunProgress(rounds=30, round=8)
    state.happen(event)
    assert state.notices == [said]
    assert stage_of(state) == said
    state.happen(over)
    assert "waits" not in stage_of(state)


@pytest.mark.parametrize(
    ("step", "answered", "needed", "why"),
    [
        (None, 2, 3, "2 devices have an update; a secure sum needs 3"),
        ("update", 2, 3, "the padded updates of 2 of 5 devices came; 3 are needed"),
        ("opening", 4, 3, "the shares of 4 devices open no sum"),
    ],
)
def test_a_secure_sum_that_failed_is_told(
    step: str | None, answered: int, needed: int, why: str
) -> None:
    state = standing_after(
        {"event": "secure_sum_failed", "round": 7, "step": step, "answered": answered,
         "needed": needed, "members": 5}
    )  # fmt: skip
    assert state.notices == [f"round 7 has no secure sum: {why}"]


def test_empty_rounds_are_counted_and_unknown_events_passed_over() -> None:
    standing = standing_after({"event": "of the future"}, committed(1, outcome="empty", folded=0))
    assert (standing.empty, standing.round) == (1, 1)


def test_a_run_that_counts_versions_says_how_many_there_are() -> None:
    state = RunProgress()
    state.happen(started(rounds=6) | {"counts": "versions"})
    for number, version in ((1, 1), (2, 1), (3, 2)):
        state.happen(committed(number, version=version))
    assert (state.done, state.round, state.counts) == (2, 3, "versions")
    state.happen({"event": "evaluated", "round": 1, "version": 1, "loss": 1.0, "accuracy": None})
    assert "loss 1 (version 1)" in facts_of(state)
    state.happen({"event": "evaluated", "round": 3, "version": 2, "loss": 0.5, "accuracy": None})
    assert "loss 0.5" in facts_of(state)

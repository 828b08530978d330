from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.markov import Markov
from muster.client.availability.trace import Replay
from muster.client.availability.traces import AvailabilityTrace, write_traces
from muster.emulator.export.traces import export_traces

MakeCast = Callable[..., DeviceBatch]


def answers(*rows: tuple[int, str, str | None]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["round", "client", "reason"])
    frame["decision"] = ["accept" if reason is None else "decline" for _, _, reason in rows]
    # As an account reads them from the ledger.
    return frame.astype({"round": "Int64", "client": "string", "reason": "string"})


def lockstep(rounds: int, step_s: float) -> tuple[dict[int, float], float]:
    return {number: (number - 1) * step_s for number in range(1, rounds + 1)}, rounds * step_s


def test_a_device_was_away_when_it_was_offline_or_powered_off() -> None:
    found = answers(
        (1, "a", "offline"), (1, "b", None), (2, "b", "unwilling"),
        (2, "a", None), (3, "b", "powered off"), (3, "a", "battery"), (4, "b", "offline"),
    )  # fmt: skip
    assert export_traces(found, *lockstep(5, 60.0)) == {
        "a": AvailabilityTrace(False, (60.0,), 300.0),
        "b": AvailabilityTrace(True, (120.0,), 300.0),
    }


def test_one_who_was_not_there_to_be_called_was_away() -> None:
    found = answers((1, "a", None), (2, "a", None), (3, "a", None))
    found.loc[1, "decision"] = "absent"
    opened_s = {1: 0.5, 2: 7.0, 3: 31.0}  # on the wall clock rounds are as long as they are
    assert export_traces(found, opened_s, 40.0) == {"a": AvailabilityTrace(True, (7.0, 31.0), 40.0)}


def test_rounds_without_an_answer_leave_a_device_what_it_was() -> None:
    found = answers((9, "a", None), (3, "a", "offline"), (5, "a", "offline"))
    assert export_traces(found, *lockstep(10, 10.0)) == {
        "a": AvailabilityTrace(False, (80.0,), 100.0)
    }


def test_an_answer_of_another_round_is_refused() -> None:
    with pytest.raises(ValueError, match="expected answers of 2 rounds, found one of 3"):
        export_traces(answers((3, "a", None)), *lockstep(2, 10.0))


def test_a_run_replayed_from_its_export_is_the_same_run(
    tmp_path: Path, make_cast: MakeCast
) -> None:
    cast = make_cast(5, step_s=0.1)
    process = Markov(kind="markov", mean_up_s=0.5, mean_down_s=0.7).process(cast)
    on = np.array([process.on(cast.scene(step)) for step in range(200)])
    found = answers(
        *(
            (step + 1, client, None if on[step, i] else "offline")
            for step in range(200)
            for i, client in enumerate(cast.clients)
        )
    )
    write_traces(tmp_path / "traces.csv", export_traces(found, *lockstep(200, cast.step_s)))
    replayed = Replay(kind="trace", file=str(tmp_path / "traces.csv")).process(cast)
    np.testing.assert_array_equal([replayed.on(cast.scene(step)) for step in range(200)], on)

"""What the settings of shared links refuse, and the model that they become."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from muster.common.lines import LinkModel
from muster.emulator.links.shared import SharedLink

RECORDING = "seconds,down Mbit/s\n0,8\n1,2\n2,2\n3,0\n4,8\n"


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "cell.csv"
    path.write_text(RECORDING)
    return str(path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"trace": "/nowhere.csv"}, "expected the file of one recording"),
        ({"cross_traffic": [{"up": "1 Mbit/s"}]}, "found no limit up"),
        ({"up": "2 Mbit/s", "cross_traffic": [{}]}, "expected a rate `down` or `up`"),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "1 Mbit/s", "on": "2 s"}]},
            "off: expected both `on` and `off`",
        ),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "3 Mbit/s"}]},
            "up: cross traffic leaves nothing of the link",
        ),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "1999.5 kbit/s"}]},
            "500 bit/s are left in the mean, expected at least 1000 bit/s",
        ),
        ({"queue_up": "64 KiB"}, "queue_up: expected a rate `up` or `trace_up`"),
        (
            {"up": "2 Mbit/s", "queue_up": "64 KiB", "cells": {"a": {"up": "1 Mbit/s"}}},
            "a link with cells has no queue of all",
        ),
        ({"cells": {"a": {"cross_traffic": [{"up": "1 Mbit/s"}]}}}, "found no limit up"),
    ],
)
def test_what_makes_no_sense_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SharedLink.model_validate(table)


def test_a_recording_of_one_direction_is_refused_for_the_other(recording: str) -> None:
    with pytest.raises(ValidationError, match=r"trace_up: .* has rates down only"):
        SharedLink.model_validate({"trace_up": recording})


def test_a_recorded_link_divides_its_rate_among_the_devices(recording: str) -> None:
    table = {"trace": recording, "cells": {"a": {"trace": recording}}, "up": "1 Mbit/s"}
    line = SharedLink.model_validate(table).line(7, "valley")
    assert line.down_bps == pytest.approx(4e6)
    assert (line.up_bps, line.up_traces) == (1e6, ())
    alone = line.least(LinkModel(cell="a"), 1)
    assert alone.down_bps == pytest.approx(4e6)
    assert alone.gap_s == pytest.approx(1.0)
    assert line.parts[1].trace_files() == {recording}


def test_cross_traffic_is_drawn_from_the_seed_and_the_name() -> None:
    load = {"up": "1 Mbit/s", "down": "2 Mbit/s", "on": "2 s", "off": "3 s"}
    link = SharedLink.model_validate(
        {"up": "4 Mbit/s", "down": "8 Mbit/s", "cross_traffic": [load]}
    )
    means = [
        link.line(seed, name).up_bps for seed, name in ((7, "a"), (7, "a"), (8, "a"), (7, "b"))
    ]
    assert means[0] == means[1]
    assert len(set(means)) == 3
    line = link.line(7, "a")
    up, down = line.up_traces[0].whole(), line.down_traces[0].whole()
    assert up.instants.tolist() == down.instants.tolist()  # both are on at the same times
    assert up.mean_bps == pytest.approx(3.6e6, rel=0.05)

"""Links over which a run would wait in vain are refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.slow_links import check_links


def scenario(link: dict[str, Any], shared: dict[str, Any], count: int = 2, **more: Any) -> Scenario:
    values = {
        "name": "slow",
        "task": "linear",
        "groups": [{"name": "cell", "count": count, "link": link, "shared_link": shared}],
        "server": {"rounds": 1, "stall_s": 40, "deadline_s": 30},
        **more,
    }
    return validate(Scenario, values, "scenario")


def trace(tmp_path: Path, lines: list[int]) -> str:
    path = tmp_path / "trace"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_a_trace_has_the_lower_bound_of_every_link(tmp_path: Path) -> None:
    # 1500 bytes in 600 s: 20 bit/s. In 12 s: 1 kbit/s.
    for key in ("trace", "trace_up"):
        with pytest.raises(ConfigError, match=rf"{key}: .* carries 20 bit/s in the mean, expected"):
            scenario({key: trace(tmp_path, [600_000])}, {})
        assert scenario({key: trace(tmp_path, [12_000])}, {})


GAP = [*range(1, 4000), 45_000]  # about 1 Mbit/s, and 41 s of nothing


@pytest.mark.parametrize(
    ("link", "shared", "count", "said"),
    [
        ({"trace": GAP}, {}, 2, r"groups\[0\].link: the slowest device may wait 41 s for a mess"),
        ({"trace_up": GAP}, {}, 2, "a trace without such gaps"),
        # 1024 bytes at 1 kbit/s take 8.2 s, those of 10 devices 82 s.
        ({}, {"up": "1 kbit/s"}, 10, r"groups\[0\].shared_link.up: 10 devices at once need 81.9 s"),
        ({}, {"down": "1 kbit/s"}, 10, "fewer devices or a longer server.stall_s"),
        (
            {},
            {"up": "1 Mbit/s", "queue_up": "10 MB"},
            2,
            r"groups\[0\].shared_link: a message may wait 80 s in the queue",
        ),
        # Of 200 devices with rates that differ by a factor of exp(±2), some have 100 bit/s.
        ({"up": "2 kbit/s", "spread": 2.0}, {}, 200, "link: the slowest device may wait"),
        (
            {"up": "1 Mbit/s", "rtt": "30 s", "loss": 0.5},
            {},
            2,
            "link: the slowest device may wait",
        ),
    ],
)
def test_links_over_which_nobody_enrolls_in_time_are_refused(
    tmp_path: Path, link: dict[str, Any], shared: dict[str, Any], count: int, said: str
) -> None:
    given = {k: trace(tmp_path, v) if isinstance(v, list) else v for k, v in link.items()}
    for clock in ("rounds", "wall"):
        with pytest.raises(ConfigError, match=said):
            scenario(given, shared, count, clock={"kind": clock})


@pytest.mark.parametrize(
    ("link", "shared", "count"),
    [
        ({"up": "1 kbit/s", "down": "1 kbit/s"}, {}, 2),
        ({}, {"up": "1 kbit/s"}, 4),  # 33 s
        ({"up": "1 Mbit/s", "spread": 2.0}, {}, 200),
        ({"profile": "edge"}, {}, 100),
        ({"profile": "geo", "loss": 0.1}, {"up": "1 Mbit/s"}, 100),
        ({"profile": "unshaped"}, {}, 2),
    ],
)
def test_slow_links_that_work_are_accepted(
    link: dict[str, Any], shared: dict[str, Any], count: int
) -> None:
    check_links(scenario(link, shared, count), 100)


def test_in_lockstep_a_part_of_the_model_has_to_arrive_while_the_server_waits() -> None:
    # 16 KiB at 3 kbit/s take 43.7 s, and 14 kB 37.3 s.
    slow = scenario({"up": "3 kbit/s"}, {})
    check_links(slow, 14_000)
    with pytest.raises(
        ConfigError, match=r"link: the slowest device may wait 43.7 s for a part of"
    ):
        check_links(slow, 1_000_000)
    check_links(scenario({"up": "3 kbit/s"}, {}, clock={"kind": "wall"}), 1_000_000)


def test_devices_that_transfer_at_once_share_the_link_of_the_group() -> None:
    # 8 of 20 devices transfer at once: 8 · 16 KiB at 20 kbit/s take 52 s, those of 4 take 26 s.
    server = {"rounds": 1, "stall_s": 40}
    with pytest.raises(ConfigError, match=r"shared_link.up: 8 devices at once need 52.4 s"):
        check_links(scenario({}, {"up": "20 kbit/s"}, 20, server=server), 1_000_000)
    check_links(scenario({}, {"up": "20 kbit/s"}, 20, server=server | {"transfers": 4}), 1_000_000)


CELLS: dict[str, Any] = {"cells": {"a": {"up": "1 kbit/s"}, "b": {"within": "a"}}}


def test_devices_of_a_cell_that_is_too_slow_are_refused() -> None:
    assert scenario({"cell": "b"}, CELLS, 4)  # 1 KiB of 4 devices at 1 kbit/s: 33 s
    with pytest.raises(ConfigError, match=r"shared_link.cells.a.up: 5 devices at once need 41 s"):
        scenario({"cell": "b"}, CELLS, 5)


@pytest.mark.parametrize(
    ("link", "shared", "said"),
    [
        ({"cell": "c"}, CELLS, "link.cell: cell-0000 is in 'c', but shared_link.cells has a, b"),
        ({"cell": "c", "rtt": "1 s"}, {}, "link.cell: cell-0000 is in 'c', .*cells has none"),
        ({}, CELLS, "link.cell: expected the cells of the devices, because shared_link has some"),
        ({"cell": 3}, CELLS, "link.cell: expected text or a distribution's table, found 3"),
        (
            {"cell": "a"},
            {"cells": {"a": {"within": "b"}}},
            "shared_link: cells.a.within: there is no cell 'b'; there are: a",
        ),
        (
            {"cell": "a"},
            {"cells": {"a": {"within": "b"}, "b": {"within": "a"}}},
            "cells.a.within: 'a' is within itself; expected a tree",
        ),
        ({"cell": "a"}, {**CELLS, "slots": 2}, "slots: a link with cells has no slots; leave out"),
        ({"cell": "a"}, {"cells": {"a": {"up": 3}}}, "cells.a.up: expected a number with a unit"),
    ],
)
def test_cells_that_make_no_tree_are_refused(
    link: dict[str, Any], shared: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(link, shared)

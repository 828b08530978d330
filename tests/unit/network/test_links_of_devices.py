"""Links that differ from device to device, from the scenario to whoever uses them."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import by_group, members_of
from muster.emulator.launch.gateway_configs import gateways_of
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shape import Shape
from muster.emulator.report.links import links_of
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import named_files, read_scenario
from muster.emulator.scenario.scenario import Scenario

NAMES = [f"a-{number:04d}" for number in range(500)]


def column(name: str, unit: str | None = None, **more: Any) -> dict[str, Any]:
    found = {"kind": "file", "path": "links.csv", "column": name, **more}
    return found if unit is None else {**found, "unit": unit}


def scenario(folder: Path, text: str, link: dict[str, Any], count: int = 3) -> Scenario:
    (folder / "links.csv").write_text(text)
    group = {"name": "a", "count": count, "link": link}
    values = {"name": "links", "task": "linear", "server": {"rounds": 1}, "groups": [group]}
    (folder / "links.toml").write_text(tomli_w.dumps(values))
    return read_scenario(folder / "links.toml")


def shapes(link: dict[str, Any], seed: int = 7, names: list[str] = NAMES) -> list[Shape]:
    places = [int(name[-4:]) for name in names]
    return list(LinkSettings.model_validate(link).shapes_of(seed, names, places))


# --- distributions -------------------------------------------------------------------------------

RATE = {"kind": "log-normal", "median": 20, "sigma": 0.8, "unit": "Mbit/s"}
RTT = {"kind": "uniform", "low": 20, "high": 80, "unit": "ms"}


def test_every_device_draws_its_own_link_in_the_unit_of_the_distribution() -> None:
    found = shapes({"down": RATE, "rtt": RTT, "up": "5 Mbit/s"})
    rates = np.array([shape.down_bps for shape in found])
    assert np.median(rates) == pytest.approx(20e6, rel=0.15)
    assert np.log(rates).std() == pytest.approx(0.8, rel=0.1)
    trips = np.array([shape.rtt_s for shape in found])
    assert 0.020 <= trips.min() < 0.022
    assert 0.078 < trips.max() <= 0.080
    assert {shape.up_bps for shape in found} == {5e6}
    assert abs(np.corrcoef(rates, trips)[0, 1]) < 0.15


def test_a_link_depends_on_the_seed_and_on_no_other_device() -> None:
    link = {"down": RATE, "rtt": RTT, "loss": {"kind": "uniform", "low": 0, "high": 0.1}}
    assert shapes(link)[3:5] == shapes(link, names=NAMES[3:5])
    assert shapes(link, seed=8) != shapes(link)
    alone = [shape.down_bps for shape in shapes({"down": RATE})]
    assert [shape.down_bps for shape in shapes(link)] == alone


def test_drawn_values_are_cut_to_the_bounds_of_their_key() -> None:
    wide = {"kind": "normal", "mean": 0, "sd": 20, "unit": "s"}
    found = [shape.rtt_s for shape in shapes({"rtt": wide})]
    assert (min(found), max(found)) == (0.0, 30.0)


def test_devices_with_the_same_link_share_its_shape() -> None:
    assert len({id(shape) for shape in shapes({"profile": "3g"})}) == 1


def test_the_spread_of_both_rates_multiplies_what_a_device_has() -> None:
    plain, spread = (
        shapes({"down": RATE, "up": RATE}),
        shapes({"down": RATE, "up": RATE, "spread": 0.5}),
    )
    for before, after in zip(plain, spread, strict=True):
        assert before.down_bps
        assert before.up_bps
        assert after.down_bps
        assert after.up_bps
        assert after.down_bps / before.down_bps == pytest.approx(after.up_bps / before.up_bps)
    assert plain != spread


def test_a_scenario_is_written_as_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "drive.log").write_text("0 8\n1 4\n")
    link: dict[str, Any] = {"down": RATE, "rtt": RTT, "loss": {"kind": "position"}}
    link |= {"trace_start": RTT, "trace": str(tmp_path / "drive.log")}
    read = scenario(tmp_path, "", link, count=1)
    written = tomllib.loads(read.to_toml())["groups"][0]["link"]
    assert {key: written[key] for key in link} == {
        "down": {**RATE, "median": 20.0},
        "rtt": {**RTT, "low": 20.0, "high": 80.0},
        "loss": {"kind": "position", "first": 0.0, "step": 1.0},
        "trace_start": {**RTT, "low": 20.0, "high": 80.0},
        "trace": link["trace"],
    }
    assert LinkSettings.model_validate(written) == read.groups[0].link


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"down": {"kind": "uniform"}}, "link.down: expected unit to be one of Gbit/s, .* None"),
        ({"rtt": {**RTT, "unit": "Mbit/s"}}, "link.rtt: expected unit to be one of h, min, s, ms"),
        ({"loss": {**RTT}}, "link.loss: unit = 'ms', but the key has no unit; leave it out"),
        ({"down": 20}, 'link.down: expected a number with a unit, "6 Mbit/s"; found 20'),
        ({"down": "1 bit/s"}, "link.down: expected at least 1000, found '1 bit/s'"),
        ({"loss": 0.6}, r"link.loss: expected at most 0\.5, found 0\.6"),
        ({"loss": "much"}, "link.loss: expected a number or a distribution's table"),
        (
            {"down": {"kind": "categorical", "values": ["fast"], "unit": "bit/s"}},
            "link.down: expected a number or a distribution of numbers, found 'categorical'",
        ),
        ({"trace": {"kind": "normal"}}, "link.trace: expected a path, or { kind = 'file', … }"),
        ({"trace_start": "later"}, "link.trace_start: expected a number with a unit"),
    ],
)
def test_what_a_key_cannot_be_is_refused(tmp_path: Path, link: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(tmp_path, "", link)


# --- files ---------------------------------------------------------------------------------------

TEXT = "client,down,rtt,loss\na-0002,30,0.3,0\na-0000,10,0.1,0.01\na-0001,0.5,0.2,0.02\n"
FILE = {"down": column("down", "Mbit/s"), "rtt": column("rtt", "s"), "loss": column("loss")}


def test_everybody_who_uses_a_link_sees_that_of_the_device(tmp_path: Path) -> None:
    read = scenario(tmp_path, TEXT, FILE)
    residents = population(read)
    assert [each.shape.down_bps for each in residents] == [10e6, 0.5e6, 30e6]
    assert [each.shape.rtt_s for each in residents] == [0.1, 0.2, 0.3]
    [gateway] = gateways_of(read, residents, tmp_path, "credentials")
    assert [device.shape for device in gateway.devices] == [each.shape for each in residents]
    [(group, of_group)] = by_group(read, residents)
    members = members_of(read, group, of_group)
    assert [member.line.rtt_s for member in members] == [0.1, 0.2, 0.3]
    assert members[2].line.down_bps == 30e6
    of_report = links_of(tomllib.loads(read.to_toml()))["a"]
    assert [of_report.line_of(each.client) for each in members] == [each.line for each in members]


def test_a_file_of_links_is_one_that_the_run_is_bound_to(tmp_path: Path) -> None:
    read = scenario(tmp_path, TEXT, FILE)
    assert tmp_path / "links.csv" in list(named_files(tomllib.loads(read.to_toml())))


def test_a_report_without_the_file_shows_no_limit(tmp_path: Path) -> None:
    read = scenario(tmp_path, TEXT, FILE)
    (tmp_path / "links.csv").unlink()
    assert links_of(tomllib.loads(read.to_toml()))["a"].line_of("a-0000").down_bps is None


def test_a_trace_and_its_start_can_be_those_of_the_device(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("100\n")
    (tmp_path / "fast").write_text("1\n2\n")
    link = {"trace": column("trace"), "trace_start": column("at", "s")}
    read = scenario(tmp_path, "trace,at\nslow,1\nfast,0\nslow,5\n", link)
    found = [(each.shape.trace_down, each.shape.trace_start_s) for each in population(read)]
    slow, fast = str(tmp_path / "slow"), str(tmp_path / "fast")
    assert found == [(slow, 1.0), (fast, 0.0), (slow, 5.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("down\n1\n-2\n3\n", "link.down: .*links.csv, line 3: expected a number from 0.001 to"),
        ("down\n1\n2\nfast\n", "link.down: .*links.csv, line 4: expected a number .* found 'fast'"),
        ("down\n1\nnan\n2\n", "link.down: .*line 3: expected a number .* found 'nan'"),
        ("down\n1\n2\n", "link.down: .*links.csv has 2 rows, and no column 'client'"),
        ("up\n1\n2\n3\n", "link.down: .*links.csv has no column 'down'; there are: up"),
    ],
)
def test_a_file_of_which_a_value_cannot_be_used_is_refused_when_it_is_read(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"groups\[0\]\.{said}"):
        scenario(tmp_path, text, {"down": column("down", "Mbit/s")})


def test_a_trace_of_a_device_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("600000\n")
    with pytest.raises(ConfigError, match=r"link.trace: .*dead carries 20 bit/s in the mean"):
        scenario(tmp_path, "trace\ndead\n", {"trace": column("trace")}, count=1)


def test_one_device_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    link = {"down": column("down", "kbit/s"), "rtt": column("rtt", "s")}
    text = "down,rtt\n1000,29\n1,0\n1000,0\n"
    assert scenario(tmp_path, text, link)  # 1 KiB at 1 kbit/s take 8.2 s
    read = {"name": "x", "task": "linear", "server": {"rounds": 1, "stall_s": 8}}
    (tmp_path / "x.toml").write_text(
        tomli_w.dumps({**read, "groups": [{"name": "a", "count": 3, "link": link}]})
    )
    with pytest.raises(ConfigError, match="link: the slowest device may wait 29 s for a message"):
        read_scenario(tmp_path / "x.toml")

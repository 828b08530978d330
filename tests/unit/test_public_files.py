"""Files of other projects as users bring them: the command that a page tells them to run, and what
becomes of it in a scenario. The files imitate public ones; tests/data/README.md says which.

docs/links.md has a table with the same kinds.
"""

import gzip
import json
import pickle
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from muster.cli.commands import main
from muster.common.config import validate
from muster.common.rates.recording import DIRECTIONS
from muster.emulator.links.profiles.reading import read_profiles
from muster.emulator.links.shape import Shape
from muster.emulator.planning import plan
from muster.emulator.planning.result import Learning
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario

DATA = Path(__file__).parents[1] / "data"

CAPACITY = {
    1: {"computation": 20.0, "communication": 15000.5},
    2: {"computation": 250, "communication": 900},
}
BEHAVIOUR = {
    1: {"active": [0, 1200], "inactive": [900, 1500], "finish_time": 2000, "model": "A"},
    2: {"active": [600], "inactive": [2000], "finish_time": 2000, "model": "B"},
}

Made = Callable[[Path], None]


def _pickled(value: object) -> Made:
    def write(path: Path) -> None:
        path.write_bytes(pickle.dumps(value))

    return write


class Link(NamedTuple):
    """A file about links, and the link that it becomes: rates in Mbit/s, times in ms.

    Attributes:
        file: below tests/data.
        says: what the command says of it.
        up, down: the mean rates; None: no limit.
    """

    file: str
    says: str
    down: float | None
    up: float | None = None
    delay_down: float = 0.0
    delay_up: float = 0.0
    loss: float = 0.0
    jitter: float = 0.0


def recording(
    file: str, says: str, down: float | None, up: float | None = None, **values: float
) -> Link:
    return Link(f"recordings/{file}", says, down, up, **values)


def profile(
    file: str, says: str, down: float | None, up: float | None = None, **values: float
) -> Link:
    return Link(f"profiles/{file}", says, down, up, **values)


LINKS = [
    recording("mahimahi.down", "Mahimahi", 3.648),
    recording("pensieve.log", "Pensieve", 2.00765),
    recording("puffer.log", "Pensieve", 4.3679),
    recording("nyu-mets.csv", "NYU-METS", 7.13542),
    recording("nyu-measured.txt", "seven measurements (NYU-METS)", 12.41325),
    recording("oboe.txt", "Oboe", 3.91711),
    recording("hsdpa-raw.log", "HSDPA", 1.87603),
    recording("5g-drive.csv", "rates in kbps", 25.2637, 0.477704,
              delay_down=44.85, delay_up=44.85, loss=0.0444),
    recording("named-columns.csv", "CSV with named columns", 4.8925, 0.51755,
         delay_down=27.1, delay_up=27.1),
    profile("webpagetest.ini", "Village DSL", 3, 0.5, delay_down=45, delay_up=45, loss=0.01),
    profile("devtools-preferences.json", "Village", 3, 0.5, delay_down=45, delay_up=45, loss=0.01),
    profile("puppeteer.json", "2 constant links", 0.5, 0.25, delay_down=200, delay_up=200),
    profile("cdp.json", "1 constant link", 1.6, 0.75, delay_down=75, delay_up=75),
    profile("lighthouse.json", "1 constant link", 1.6, 0.7, delay_down=60, delay_up=60),
    profile("link-conditioner.plist", "Village", 3, 0.5, delay_down=60, delay_up=30, loss=0.01),
    profile("netem.sh", "delays are one way", 3, 0.5, delay_up=30, loss=0.01, jitter=5),
    profile("htb.sh", "class 1:20 does not reach its ceil", 3, 0.5, delay_up=30, loss=0.01,
            jitter=5),
    profile("tc-class-show.txt", "tc class 1:10", None, 0.5),
    profile("tc-show.txt", "left out: duplicate", None, 0.5, delay_up=30, loss=0.01, jitter=2.887),
    profile("toxiproxy.json", "timeout of 10%", 3, None, delay_down=60, delay_up=30, jitter=5.774),
]  # fmt: skip


class Devices(NamedTuple):
    """A list of devices, and the first row that becomes of it.

    Attributes:
        makes: writes the file, if it is not below tests/data.
        arguments: of `muster devices import`, after SOURCE and OUT.
    """

    file: str
    says: str
    row: Mapping[str, float | str]
    arguments: str = ""
    makes: Made | None = None


DEVICES = [
    Devices("client_device_capacity", "FedScale", {"down_kbps": 15000.5, "examples_per_s": 16.6667},
            makes=_pickled(CAPACITY)),
    Devices("devices/flash-speeds.json", "speed_distri",
            {"down_kbps": 34410.5, "fading": 0.380249}),
    Devices("devices/flash-ai-benchmark.json", "AI_Score",
            {"device": "Phone X", "examples_per_s": 80}, "--speed 40"),
    Devices("devices/flash-scores.json", "a number for each name", {"examples_per_s": 320},
            "--speed 40 --of 'Phone Z'"),
    Devices("devices/ai-benchmark.csv", "AI-Score", {"examples_per_s": 80, "weight": 1.5},
            "--speed 40"),
    Devices("devices/bouquetfl-locations.toml", "round trips are those to Southland",
            {"down_mbps": 300, "up_mbps": 55, "rtt_ms": 94.5},
            f"--ping {DATA}/devices/bouquetfl-pings.toml --server Southland"),
    Devices("devices/bouquetfl-gpus.toml", "Steam", {"examples_per_s": 400, "weight": 0.75},
            "--speed 100 --of 'Made Up 2000'"),
    Devices("devices/bouquetfl-cpus.toml", "cores times clock", {"examples_per_s": 800},
            "--speed 100 --of 'Made Up 2'"),
]  # fmt: skip


class Lives(NamedTuple):
    """A log of lives, with the settings of a group that replay it, and how many of two devices
    accept the calls of four rounds."""

    file: str
    group: Mapping[str, Any]
    accepted: list[int]
    round_s: float = 600.0
    makes: Made | None = None


TRACE = {"availability": {"kind": "trace", "file": "FILE"}}
RECORDED = {
    "device": {"profile": "phone", "recorded": {"file": "FILE"}},
    "participation": {"require": ["charging"]},
}

LIVES = [
    Lives("client_behave_trace", TRACE, [1, 2, 2, 1], makes=_pickled(BEHAVIOUR)),
    Lives("availability-intervals.csv", TRACE, [1, 1, 1, 2]),
    Lives("flash-states.json", RECORDED, [1, 1, 0, 0], round_s=21_600),
]


def brought(file: str, makes: Made | None, packed: bool, folder: Path) -> Path:
    """The file in a folder of the user's, packed by gzip if wanted."""
    path = folder / Path(file).name
    if makes is None:
        path.write_bytes((DATA / file).read_bytes())
    else:
        makes(path)
    if packed:
        content = gzip.compress(path.read_bytes())
        path.unlink()
        path = path.with_name(f"{path.name}.gz")
        path.write_bytes(content)
    return path


def muster(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def scenario(round_s: float = 600.0, **group: Any) -> Scenario:
    values = {
        "name": "brought",
        "clock": {"round_s": round_s},
        "task": {"name": "linear", "dimension": 5},
        "server": {"rounds": 4, "deadline_s": 500.0},
        "groups": [{"name": "g", "count": 2, **group}],
    }
    return validate(Scenario, values, "test")


def shapes(given: Scenario) -> list[Shape]:
    [group] = given.groups
    residents = population(given)
    clients = [each.client for each in residents]
    return list(group.link.shapes_of(given.seed, clients, range(len(clients))))


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def packed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("case", LINKS, ids=lambda case: case.file)
def test_a_file_about_links_becomes_a_link(
    case: Link, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = brought(case.file, None, packed, tmp_path)
    told = muster("trace", "import", "--link", path.name)
    assert case.says in told
    _, _, lines = told.partition("[groups.link]")
    table = tomllib.loads(lines.partition("[groups.link]")[0])
    for key in ("trace", "trace_up"):
        if key in table:
            table[key] = str(path)
    assert ("trace" in table) == case.file.startswith("recordings")
    shape = shapes(scenario(link=table))[0]
    expected = {"down": (case.down, case.delay_down), "up": (case.up, case.delay_up)}
    for way in DIRECTIONS:
        mbps, delay_ms = expected[way]
        trace, bps = shape.trace(way), shape.bps(way)
        mean_bps = bps if trace is None else trace.mean_bps
        assert mean_bps == (None if mbps is None else pytest.approx(1e6 * mbps, rel=1e-4))
        assert 1000 * shape.delay_s(way) == pytest.approx(delay_ms)
    assert shape.loss_of("up") == pytest.approx(case.loss)
    assert 1000 * shape.jitter_s == pytest.approx(case.jitter, rel=1e-3)


@pytest.mark.parametrize("case", DEVICES, ids=lambda case: case.file)
def test_a_list_of_devices_becomes_a_table(
    case: Devices, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = brought(case.file, case.makes, packed, tmp_path)
    told = muster("devices", "import", path.name, "devices.csv", *shlex.split(case.arguments))
    assert case.says in told
    header, first, *_ = Path("devices.csv").read_text().splitlines()
    row = dict(zip(header.split(","), first.split(","), strict=True))
    for column, expected in case.row.items():
        found = row[column] if isinstance(expected, str) else float(row[column])
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected, 1e-4))
    rows = "drawn" if "weight" in row else "each"
    given = scenario(table={"path": str(tmp_path / "devices.csv"), "rows": rows})
    if "down_mbps" in case.row:
        assert shapes(given)[0].down_bps == pytest.approx(1e6 * float(row["down_mbps"]))
    assert [each.called.sum() for each in plan(given, Learning.of(given)).groups] == [8]


@pytest.mark.parametrize("case", LIVES, ids=lambda case: case.file)
def test_a_log_of_lives_is_replayed(
    case: Lives, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = brought(case.file, case.makes, packed, tmp_path)
    if case.makes is not None:
        muster("trace", "import", path.name, "lives.csv")
        path = tmp_path / "lives.csv"
    group = json.loads(json.dumps(case.group).replace("FILE", str(path)))
    given = scenario(case.round_s, **group)
    [found] = plan(given, Learning.of(given)).groups
    assert found.accepted.tolist() == case.accepted


# --- damage --------------------------------------------------------------------------------------

NUMBERS = {
    "profiles/webpagetest.ini": "bwIn=",
    "profiles/devtools-preferences.json": 'download\\":',
    "profiles/puppeteer.json": '"download": ',
    "profiles/cdp.json": '"downloadThroughput": ',
    "profiles/lighthouse.json": '"throughputKbps": ',
    "profiles/link-conditioner.plist": "<key>DownlinkBandwidth</key><integer>",
    "profiles/netem.sh": "rate ",
    "profiles/htb.sh": "rate ",
    "profiles/tc-class-show.txt": "ul m1 0bit d 0us m2 ",
    "profiles/tc-show.txt": "delay ",
    "profiles/toxiproxy.json": '"rate": ',
    "devices/flash-speeds.json": '"down_u": ',
    "devices/flash-ai-benchmark.json": '"AI_Score": "',
    "devices/flash-scores.json": '"Phone Y": ',
    "devices/ai-benchmark.csv": "2018,",
    "devices/bouquetfl-locations.toml": "download_mbps = ",
    "devices/bouquetfl-gpus.toml": "clock_speed   = ",
    "devices/bouquetfl-cpus.toml": "core_clock  = '",
}
"""What stands before a number of each file. `test_recordings` damages recordings, and
`availability/test_recorded_lives` and `test_fedscale` logs of lives and pickles."""

DAMAGES: Mapping[str, Callable[[str, str], str]] = {
    "truncated": lambda before, after: before,
    "empty": lambda before, after: "",
    "binary": lambda before, after: f"\0\1{before}7{after}",
    "word": lambda before, after: f"{before}fast{after}",
    "nan": lambda before, after: f"{before}nan{after}",
    "infinite": lambda before, after: f"{before}inf{after}",
    "negative": lambda before, after: f"{before}-3{after}",
    "wrong unit": lambda before, after: f"{before}3000000000000000{after}",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", NUMBERS)
def test_a_damaged_file_is_refused_by_name(
    file: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before, key, after = (DATA / file).read_text().partition(NUMBERS[file])
    assert key, "the number is there"
    after = after.lstrip().lstrip("0123456789.")
    Path("brought").write_text(DAMAGES[damage](before + key, after))
    command = ["trace", "import", "--link", "brought"]
    if file.startswith("devices"):
        arguments = next(case.arguments for case in DEVICES if case.file == file)
        command = ["devices", "import", "brought", "devices.csv", *shlex.split(arguments)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2, result.output
    assert "brought" in result.stderr
    assert re.search("expected|is not TOML|is not JSON|has nothing in column", result.stderr)
    assert not Path("devices.csv").exists()


@pytest.mark.parametrize(
    ("commands", "says"),
    [
        (
            "tc qdisc add dev eth0 root netem delay ${D}ms",
            "line 1: expected a number after 'delay'",
        ),
        ("\ntc qdisc add dev e root netem \\\n rate 1mbit loss $L%", "line 2: .* after 'loss'"),
        ("tc qdisc add dev eth0 root netem rate 1e9gbit", "tc: expected a rate up from"),
        ("tc class add dev e classid 1:1 htb rate ${R}mbit", "line 1: .* after 'rate'"),
        ("tc class add dev e classid 1:$i htb rate 1mbit", "line 1: .* after 'classid'"),
        ("tc class add dev e classid 1:1 htb ceil 1mbit", "line 1: .* after 'rate'"),
        ("tc class add dev e classid 1:1 hfsc sc rate 1mbit ul rate $U", "line 1: .* after 'ul'"),
        ("tc class add dev e classid 1:1 htb rate 1parsec", "line 1: expected a unit"),
        (
            "\n".join(
                f"tc class add dev {device} classid 1:{name} htb rate 1mbit"
                for device, name in (("e", 1), ("e", 2), ("ifb0", 2), ("ifb0", 3))
            ),
            "the same classes in both directions, found 1:1, 1:2, and 1:2, 1:3 of the ifb; leave",
        ),
    ],
)
def test_commands_that_cannot_be_read_are_refused(commands: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tc.sh"
    path.write_text(commands)
    with pytest.raises(ValueError, match=says):
        read_profiles(path)


def test_a_changed_discipline_replaces_its_delay(tmp_path: Path) -> None:
    path = tmp_path / "tc.sh"
    path.write_text(
        "tc qdisc add dev eth0 root netem delay 50ms  # without a rate\n"
        "tc qdisc change dev eth0 root netem delay 80ms\n"
    )
    [link] = read_profiles(path)
    assert link.rtt_s == pytest.approx(0.08)


HTB = (
    "tc class add dev e parent 1: classid 1:1 htb rate 20mbit",
    "tc class add dev e parent 1:1 classid 1:10 htb rate 5mbit ceil 10mbit",
)


@pytest.mark.parametrize(
    ("commands", "mbps", "says"),
    [
        (HTB, 10, "while no other sends"),  # it borrows 5 from 1:1
        ((HTB[0].replace("20", "8"), HTB[1]), 8, "does not reach its ceil"),
        (["tc class add dev e parent 1: classid 1:1 htb rate 5mbit ceil 10mbit"], 5, "its ceil"),
        ([*HTB, "tc class change dev e classid 1:10 htb rate 3mbit"], 3, "no other"),
        ([*HTB, "tc class del dev e classid 1:10"], 20, "no other"),
        (["class htb 1:1 root leaf 8001: prio 0 rate 5Mbit ceil 5Mbit burst 1600b"], 5, "no other"),
        ([*HTB, "tc qdisc add dev e parent 1:10 netem rate 2mbit"], 2, "no other"),
        (["tc class add dev e classid 1:1 hfsc ls rate 5mbit ul rate 8mbit"], 8, "no other"),
        (["tc class add dev e classid 1:1 hfsc sc rate 9mbit ul rate 8mbit"], 9, "no other"),
        (["tc class add dev e classid 1:1 hfsc sc umax 1500b dmax 9ms rate 5mbit"], None, "no lim"),
        (
            [
                "tc class add dev e classid 1:1 hfsc ls m2 5mbit ul m2 6mbit",
                "tc class add dev e parent 1:1 classid 1:2 hfsc ls rate 2mbit",
            ],
            6,
            "no other",
        ),
        (["tc class add dev e parent 1:1 classid 1:1 htb rate 5mbit"], None, "one way"),  # no leaf
    ],
)
def test_a_class_has_the_rate_that_it_has_alone(
    commands: Sequence[str], mbps: float | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "tc.sh"
    path.write_text("\n".join(commands))
    [link] = read_profiles(path)
    assert link.up_bps == (None if mbps is None else 1e6 * mbps)
    assert link.down_bps is None
    assert says in link.note


def test_each_of_several_classes_is_a_link_with_its_own_queues(tmp_path: Path) -> None:
    path = tmp_path / "tc.sh"
    path.write_text(
        "\n".join(
            [
                *HTB,
                "tc class add dev e parent 1:1 classid 1:20 htb rate 1mbit",
                "tc qdisc add dev e parent 1:10 handle 10: netem delay 50ms",
                "tc qdisc add dev e parent 1:20 handle 20: tbf rate 900kbit latency 400ms",
                "tc qdisc add dev e parent 20: netem delay 80ms loss 1%",
                "tc qdisc add dev ifb0 root netem rate 3mbit",
            ]
        )
    )
    first, second = read_profiles(path)
    assert (first.name, second.name) == ("tc class 1:10", "tc class 1:20")
    assert (first.down_bps, first.up_bps, first.rtt_s, first.loss) == (3e6, 10e6, 0.05, 0)
    assert (second.down_bps, second.up_bps, second.rtt_s, second.loss) == (3e6, 9e5, 0.08, 0.01)
    path.write_text(
        "qdisc netem 10: dev e parent 1:1 limit 1000 delay 50ms\n"
        "qdisc netem 20: dev e parent 1:2 limit 1000 delay 80ms\n"
        "class htb 1:1 root leaf 10: prio 0 rate 5Mbit ceil 5Mbit burst 1600b cburst 1600b\n"
        "class htb 1:2 root leaf 20: prio 0 rate 1Mbit ceil 1Mbit burst 1600b cburst 1600b\n"
    )
    assert [(each.up_bps, each.rtt_s) for each in read_profiles(path)] == [(5e6, 0.05), (1e6, 0.08)]


def test_conditions_without_a_network_are_no_links(tmp_path: Path) -> None:
    path = tmp_path / "offline.json"
    path.write_text('{"Offline": {"download": 0, "upload": 0, "latency": 0}}')
    with pytest.raises(ValueError, match="has no links"):
        read_profiles(path)

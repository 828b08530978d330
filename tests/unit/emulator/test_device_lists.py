"""Lists of devices of other projects, as tables of devices. The files here imitate theirs."""

import csv
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import ConfigError
from muster.emulator.fleet.device_lists import import_devices, write_devices
from muster.emulator.fleet.device_lists.contract import ImportedDevices, ImportOptions
from muster.emulator.scenario.device_table import DeviceTable


def imported(tmp_path: Path, content: str | bytes, **options: Any) -> ImportedDevices:
    """What is read of a file. It can be used as a table of devices."""
    path = tmp_path / "list"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = import_devices(path, ImportOptions(**options))
    write_devices(tmp_path / "devices.csv", found)
    rows = "drawn" if "weight" in found.columns else "each"
    table = {"path": str(tmp_path / "devices.csv"), "rows": rows}
    assert DeviceTable.model_validate(table)
    return found


# --- FedScale ------------------------------------------------------------------------------------

CAPACITY: dict[int, dict[str, float]] = {
    1: {"computation": 20.0, "communication": 15000.5},
    2: {"computation": 250, "communication": 900},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_device_of_fedscale_trains_three_times_as_long_as_it_infers(
    tmp_path: Path, protocol: int
) -> None:
    found = imported(tmp_path, pickle.dumps(CAPACITY, protocol)).columns
    assert found["examples_per_s"] == pytest.approx([1000 / 60, 1000 / 750])
    assert found["down_kbps"] == found["up_kbps"] == [15000.5, 900]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({1: {"computation": 20.0}}, "list, device 1: expected computation in ms and commun"),
        ({1: {**CAPACITY[1], "communication": 0}}, "device 1: expected .* both above 0"),
        ({1: {**CAPACITY[1], "computation": math.nan}}, "device 1: expected"),
        ({1: {**CAPACITY[1], "computation": "20"}}, "device 1: expected"),
        ([], "expected FedScale's devices by client, found list"),
        ({1: {**CAPACITY[1], "communication": 0.5}}, "device 1: expected down_kbps from 1 to"),
    ],
)
def test_devices_of_fedscale_that_cannot_be_are_refused(
    tmp_path: Path, found: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(tmp_path, pickle.dumps(found))


class Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made",)


def test_no_code_of_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"found the name posix.mkdir; no code of the file was run"
    ):
        imported(tmp_path, pickle.dumps({1: Runs()}))
    assert not (tmp_path / "made").exists()
    with pytest.raises(ConfigError, match="no code of the file was run"):
        imported(tmp_path, pickle.dumps(CAPACITY)[:-20])


# --- FLASH ---------------------------------------------------------------------------------------

WIFI = {"down_u": 4000.0, "down_sigma": 2000.0, "up_u": 2500.0, "up_sigma": 750.0}


def test_rates_of_flash_are_kib_per_second_that_fade(tmp_path: Path) -> None:
    found = imported(
        tmp_path, json.dumps({"a": WIFI, "b": {**WIFI, "up_sigma": 0, "down_sigma": 0}})
    )
    assert found.columns["down_kbps"] == pytest.approx([4000 * 8.192] * 2)
    assert found.columns["up_kbps"] == pytest.approx([2500 * 8.192] * 2)
    assert found.columns["fading"] == pytest.approx([math.sqrt(math.log(1 + 0.4**2)), 0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"a": WIFI})[:-9], "list is not JSON: "),
        (json.dumps({"a": {**WIFI, "down_u": -1}}), "device 'a': expected down_u, down_sigma"),
        (
            json.dumps({"a": WIFI, "b": {**WIFI, "up_u": 0}}),
            "device 'b': expected .* means above 0",
        ),
    ],
)
def test_rates_of_flash_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(tmp_path, text)


# --- BouquetFL -----------------------------------------------------------------------------------

PLACES = """schema_version = 1
[[locations]]
name = "Germany"
download_mbps = 100.0
upload_mbps = 40
[[locations]]
name = "India"
download_mbps = 60.0
upload_mbps = 60.0
"""
PING = """[[edges]]
from = "India"
to = "Germany"
ping_ms = 159.8
[[edges]]
from = "India"
to = "Nigeria"
ping_ms = 200.0
"""


def test_places_have_their_rates_and_their_pings_to_the_server(tmp_path: Path) -> None:
    (tmp_path / "ping").write_text(PING)
    found = imported(tmp_path, PLACES, ping=tmp_path / "ping", server="Germany").columns
    assert found == {
        "device": ["Germany", "India"],
        "down_mbps": [100, 60],
        "up_mbps": [40, 60],
        "rtt_ms": [0, 159.8],
    }
    assert "rtt_ms" not in imported(tmp_path, PLACES).columns
    with open(tmp_path / "devices.csv") as file:
        assert next(csv.DictReader(file))["up_mbps"] == "40"


GPUS = """[[gpus]]
name = "GTX 1050"
clock_speed = 1500.0
cuda_cores = 640
shss = 0.25
[[gpus]]
name = "RTX 4060"
clock_speed = 2500.0
cuda_cores = 3072
shss = 0.75
"""
CPUS = """[[cpus]]
name = "i5"
cores = "6 / 12"
core_clock = "2.5 to 4.4 GHz"
[[cpus]]
name = "E8400"
cores = "2"
core_clock = "3 GHz"
"""


def test_hardware_is_as_fast_as_its_cores_and_its_clock(tmp_path: Path) -> None:
    gpus = imported(tmp_path, GPUS, speed=1000.0, of="RTX 4060").columns
    assert gpus["examples_per_s"] == pytest.approx([1000 * 640 * 1.5 / (3072 * 2.5), 1000])
    assert gpus["weight"] == [0.25, 0.75]
    cpus = imported(tmp_path, CPUS, speed=10.0).columns
    assert cpus["examples_per_s"] == pytest.approx([20 * 26.4 / 32.4, 20 * 6 / 32.4])
    text = (
        "GPU name,Memory (GB),Clock speed,CUDA cores\nGTX 1050,2,1500,640\nRTX 4060,8,2500,3072\n"
    )
    table = imported(tmp_path, text, speed=1000.0, of="RTX 4060").columns
    assert table["examples_per_s"] == gpus["examples_per_s"]
    text = "cpu name,cores,core clock\ni5,6 / 12,2.5 to 4.4 GHz\nE8400,2,3 GHz\n"
    assert imported(tmp_path, text, speed=10.0).columns == cpus


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (GPUS, {}, "scores say only how devices compare; give --speed"),
        (GPUS, {"speed": 1.0, "of": "RTX 4070"}, "--of: .* no device 'RTX 4070'; it has RTX 4060"),
        (GPUS, {"speed": 1.0, "server": "India"}, "--server: hardware has no place; leave it out"),
        (GPUS.replace("640", '"many"'), {"speed": 1.0}, "entry 1: expected cuda_cores to be a num"),
        (CPUS.replace("3 GHz", "fast"), {"speed": 1.0}, "entry 2: expected cores like"),
        (PLACES, {"speed": 1.0}, "--speed: places have no speed of training; leave it out"),
        (PLACES, {"server": "India"}, "round trips need both --ping ping_graph.toml and --server"),
        (PLACES.replace("40", "-40"), {}, "entry 1: expected upload_mbps to be a number of at lea"),
        (PLACES[:-6], {}, "list is not TOML"),
        ("cpu name,cores\ni5,6\n", {"speed": 1.0}, "has no column 'core clock'"),
    ],
)
def test_catalogues_of_bouquetfl_that_lack_something_are_refused(
    tmp_path: Path, text: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(tmp_path, text, **options)


def test_a_place_without_a_ping_to_the_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ping").write_text(PING)
    with pytest.raises(ConfigError, match="has no ping between Nigeria and Germany; add it"):
        imported(tmp_path, PLACES, ping=tmp_path / "ping", server="Nigeria")


# --- scores --------------------------------------------------------------------------------------


def test_a_device_of_a_ranking_is_as_fast_as_its_score(tmp_path: Path) -> None:
    text = "Model,AI Score,Share\nPixel 6,80,2\nMoto G,20,5\nMi 9,50,1\n"
    found = imported(tmp_path, text, speed=10.0).columns
    assert found["device"] == ["Pixel 6", "Moto G", "Mi 9"]
    assert found["examples_per_s"] == pytest.approx([16, 4, 10])
    assert found["weight"] == [2, 5, 1]
    found = imported(tmp_path, text, speed=10.0, of="Moto G").columns
    assert found["examples_per_s"] == pytest.approx([40, 10, 25])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,score\na,1\nb,-1\n", "list, line 3: expected a number from 1e-09"),
        ("name,score\na,1\nb,\n", "list, line 3 has nothing in column 'score'"),
        ("name,price\na,1\n", "expected a list of devices, found none of the formats fedscale, fl"),
    ],
)
def test_rankings_that_cannot_be_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        imported(tmp_path, text, speed=1.0)


def test_an_option_that_a_format_does_not_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--server: the format 'flash' does not use it; leave"):
        imported(tmp_path, json.dumps({"a": WIFI}), server="Germany")

"""Targets: scenarios and other texts that people write, and files of traces."""

import pickle
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.fuzz.mutation import json_mutation, toml_mutation
from tests.fuzz.scratch import scratch, written
from tests.fuzz.target import Target, same

from muster.client.availability.traces import AvailabilityTrace, read_traces, write_traces
from muster.client.life.state_logs import StateLog, read_state_logs
from muster.common.config import Section, validate
from muster.common.distributions import AnyDistribution, AnyNumber, distribution_of
from muster.common.errors import ConfigError
from muster.common.rates.formats import stored
from muster.common.rates.reading import NamedRecording, read_recording
from muster.common.schedules import Rate, rate_at
from muster.common.seeds import stream
from muster.common.toml import parse_toml
from muster.common.units import Bandwidth, Duration, Size
from muster.emulator.expectations.language import Condition, facts_of, read_condition
from muster.emulator.fleet.fedscale import import_fedscale
from muster.emulator.links.profiles.profile import ForeignLink
from muster.emulator.links.profiles.reading import read_profiles
from muster.emulator.scenario.reading import read_scenario, setting_value
from muster.emulator.scenario.scenario import Scenario

_EXAMPLES = Path(__file__).parents[3] / "examples"
_DATA = Path(__file__).parents[2] / "data"
_RECORDINGS = _DATA / "recordings"

# --- scenarios and their settings ----------------------------------------------------------------


def _verify_scenario(found: Scenario) -> None:
    path = written("again.toml", found.to_toml().encode())
    assert same(read_scenario(path), found)


class _Values(Section):
    """A setting of every kind that has a syntax of its own."""

    bandwidth: Bandwidth | None = None
    duration: Duration | None = None
    size: Size | None = None
    value: AnyDistribution | None = None
    number: AnyNumber | None = None
    rate: Rate | None = None


def _read_values(data: bytes) -> _Values:
    return validate(_Values, parse_toml(data.decode(errors="replace"), "settings"), "settings")


def _verify_values(found: _Values) -> None:
    assert same(_Values.from_json(found.to_json()), found)
    numbers = stream(7, "fuzz").random((3, 2))
    for setting in (found.value, found.number):
        if setting is not None:
            try:
                values = distribution_of(setting).draw(numbers, ["a", "b", "c"], [0, 1, 2])
            except ValueError:  # a file that does not exist
                continue
            assert len(values) == 3
    if found.rate is not None:
        assert rate_at(found.rate, 5) >= 0


def _read_condition(data: bytes) -> Condition:
    return read_condition(data.decode(errors="replace"))


def _verify_condition(found: Condition) -> None:
    assert all(str(fact) for fact in facts_of(found))


# --- traces --------------------------------------------------------------------------------------


def _read_traces(ending: str, data: bytes) -> tuple[str, dict[str, AvailabilityTrace]]:
    return ending, read_traces(written(f"traces.{ending}", data))


def _verify_traces(found: tuple[str, dict[str, AvailabilityTrace]]) -> None:
    ending, traces = found
    path = scratch(f"again.{ending}")
    write_traces(path, traces)
    assert same(read_traces(path), traces)
    for trace in traces.values():
        assert trace.on(0.0) == trace.start


def _verify_fedscale(found: dict[str, AvailabilityTrace]) -> None:
    _verify_traces(("json", found))


def _verify_recording(found: NamedRecording) -> None:
    for rate in (found.recording.down, found.recording.up):
        if rate is not None:
            assert 0 < rate.mean_bps <= 1.000001 * rate.peak_bps
            assert rate.gap_s <= rate.period_s
            path = scratch("again.npy")
            stored.write(path, rate)
            again = read_recording(path).recording.down
            assert again is not None
            assert again.instants.tolist() == rate.instants.tolist()
            assert again.bits.tolist() == rate.bits.tolist()


def _verify_profiles(found: Sequence[ForeignLink]) -> None:
    for link in found:
        [group] = tomllib.loads(link.toml().replace("[groups.link]", "[[link]]"))["link"]
        assert group


def _verify_state_logs(found: dict[str, StateLog]) -> None:
    for log in found.values():
        for trace in log:
            assert trace.period_s is None or trace.period_s % 86400 == 0
            assert trace.on(0.0) == trace.start


_CSV = b"client,start,period_s,toggles\nphone-0,1,86400,25200 61200 64800\nphone-1,0,,3600\n"
_JSON = (
    b'{"phone-0": {"start": true, "toggles": [25200, 61200], "period_s": 86400},\n'
    b' "phone-1": {"start": false, "toggles": [3600], "period_s": null}}'
)
_FEDSCALE = {
    1: {"active": [0, 50.5], "inactive": [10, 70], "finish_time": 100},
    "2": {"active": [], "inactive": [], "finish_time": 86400.0, "model": "x"},
}

_TC = (
    b"tc qdisc add dev eth0 root netem delay 40ms 6ms distribution pareto loss gemodel 1% 50% "
    b"100% 0% limit 85 rate 1mbit\n"
    b"tc qdisc add dev ifb0 root tbf rate 8mbit burst 16kb latency 50ms\n"
)
_TOXICS = (
    b'{"web": {"name": "web", "toxics": [{"type": "bandwidth", "stream": "upstream", '
    b'"attributes": {"rate": 125}}, {"type": "latency", "attributes": {"latency": 100}}]}}'
)
_CONDITIONER = (
    b'<plist version="1.0"><dict><key>Lossy</key><dict><key>DownlinkBandwidth</key><integer>2'
    b"</integer><key>UplinkDelay</key><integer>50</integer></dict></dict></plist>"
)
_PROFILES = [
    _TC,
    _TOXICS,
    _CONDITIONER,
    b'[3G]\nlabel="Mobile 3G"\nbwIn=1600000\nbwOut=768000\nlatency=300\nplr=1\n',
    b'[{"title": "Slow", "download": 50000, "upload": -1, "latency": 2000}]',
]

TARGETS = (
    Target(
        name="scenarios",
        read=lambda data: read_scenario(written("scenario.toml", data)),
        refusals=(ConfigError,),
        verify=_verify_scenario,
        seeds=lambda: [path.read_bytes() for path in sorted(_EXAMPLES.glob("*.toml"))],
        mutate=toml_mutation(),
    ),
    Target(
        name="settings",
        read=_read_values,
        refusals=(ConfigError, tomllib.TOMLDecodeError),
        verify=_verify_values,
        seeds=lambda: [
            b'bandwidth = "1.5 Mbit/s"\nduration = "70 ms"\nsize = "20 MiB"\nrate = 0.1',
            b'value = "word"\nnumber = { kind = "log-normal", median = 4.0, sigma = 0.5 }',
            b'value = { kind = "categorical", values = ["a", "b"], weights = [0.7, 0.3] }',
            b'number = { kind = "uniform", low = -1, high = 1 }\nvalue = 3.0',
            b'value = { kind = "position", first = 1, step = 2 }\nnumber = { kind = "normal" }',
            b'value = { kind = "file", path = "a.csv", column = "b" }',
            b'rate = { kind = "inverse", initial = 0.1, shift = 50 }',
            b'rate = { kind = "exponential", initial = 0.1, decay = 0.9 }',
        ],
        mutate=toml_mutation(
            "kind", "uniform", "normal", "log-normal", "constant", "categorical", "position",
            "inverse", "inverse-sqrt", "exponential", "1 Gbit/s", "0.1 us", "1e300 h", ".5 B",
        ),
    ),
    Target(
        name="set-values",
        read=lambda data: setting_value(data.decode(errors="replace")),
        refusals=(ConfigError,),
        verify=lambda found: None,
        seeds=lambda: [b"5", b'{kind="uniform",k=5}', b"word", b"[1, 2.5]"],
    ),
    Target(
        name="conditions",
        read=_read_condition,
        refusals=(ValueError,),
        verify=_verify_condition,
        seeds=lambda: [
            b"accuracy >= before - 0.02",
            b'share("phones") > 0.1 * mean(accuracy)',
            b"rounds_until(loss < before(loss)) <= 5",
            b"0 < total(folded) / 2 != -3e2",
        ],
        most_bytes=600,
    ),
    Target(
        name="csv-traces",
        read=partial(_read_traces, "csv"),
        refusals=(ConfigError,),
        verify=_verify_traces,
        seeds=lambda: [_CSV],
    ),
    Target(
        name="json-traces",
        read=partial(_read_traces, "json"),
        refusals=(ConfigError,),
        verify=_verify_traces,
        seeds=lambda: [_JSON],
        mutate=json_mutation("start", "toggles", "period_s", "phone-0"),
    ),
    Target(
        name="fedscale-traces",
        read=lambda data: import_fedscale(written("traces.pickle", data)),
        refusals=(ConfigError,),
        verify=_verify_fedscale,
        seeds=lambda: [pickle.dumps(_FEDSCALE, protocol) for protocol in (0, 2, 4, 5)],
    ),
    Target(
        name="link-traces",
        read=lambda data: read_recording(written("trace", data)),
        refusals=(ValueError,),
        verify=_verify_recording,
        seeds=lambda: [path.read_bytes() for path in sorted(_RECORDINGS.iterdir())],
    ),
    Target(
        name="link-profiles",
        read=lambda data: read_profiles(written("profile", data)),
        refusals=(ValueError,),
        verify=_verify_profiles,
        seeds=lambda: _PROFILES,
    ),
    Target(
        name="state-logs",
        read=lambda data: read_state_logs(written("states.json", data)),
        refusals=(ValueError,),
        verify=_verify_state_logs,
        seeds=lambda: [(_DATA / "flash-states.json").read_bytes()],
        mutate=json_mutation("messages", "phone", "2020-01-02 07:00:00 TAB battery_charged_on"),
    ),
)  # fmt: skip

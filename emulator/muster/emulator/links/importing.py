"""Imports files about links: recordings into their stored form, and profiles into settings."""

from collections.abc import Iterator
from pathlib import Path

from muster.common.errors import ConfigError
from muster.common.files import refusal_of
from muster.common.rates.formats import stored
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.reading import FORMATS, read_recording
from muster.common.rates.recording import Recording
from muster.common.units import DURATIONS
from muster.emulator.links.profiles.reading import PROFILES, read_profiles
from muster.emulator.links.settings import LEAST_BPS

ENDING = ".npy"
"""How the names of stored rates end."""


def import_link(source: Path, out: Path | None, format: str | None) -> Iterator[str]:
    """Yield what was understood of a file about links, and the lines of a scenario that use it.

    Args:
        out: the file to which the rate of a recording is written. Two directions get a file each,
            with -down and -up in their names. None: nothing is written.
        format: a key of FORMATS or PROFILES; None: found by the content.

    Raises:
        ConfigError: the file cannot be read, has a mistake or is too slow, or `out` cannot be
            written.
    """
    if format not in (None, *FORMATS, *PROFILES):
        raise ConfigError(
            f"--format: expected one of {', '.join([*FORMATS, *PROFILES])}; found {format!r}"
        )
    try:
        profiles = () if format in FORMATS else read_profiles(source, format)
        if profiles:
            one = len(profiles) == 1
            yield "1 constant link" if one else f"{len(profiles)} constant links; choose one"
            for link in profiles:
                yield ""
                yield link.toml()
            return
        found, recording = read_recording(source, format)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    what = FORMATS[found].what if found in FORMATS else "the stored form"
    yield f"{source}: {what}, rates in {recording.unit}"
    yield from (f"  {note}" for note in recording.notes)
    for name, rate in _rates(recording):
        yield f"  {name}: {_told(rate)}"
        if rate.mean_bps < LEAST_BPS:
            raise ConfigError(
                f"{source} carries {rate.mean_bps:.3g} bit/s in the mean, expected at least "
                f"{LEAST_BPS:g} bit/s, as for every link; take another recording"
            )
    yield ""
    yield from _settings(source, out, recording)


def _rates(recording: Recording) -> list[tuple[str, RateOverTime]]:
    """The different rates of a recording, with what they are."""
    if recording.down is not None and recording.down is recording.up:
        return [("either way", recording.down)]
    both = ("down", recording.down), ("up", recording.up)
    return [(name, rate) for name, rate in both if rate is not None]


def _told(rate: RateOverTime) -> str:
    return (
        f"mean {_round(rate.mean_bps / 1e6)} Mbit/s, "
        f"from {_round(rate.least_bps / 1e6)} to {_round(rate.peak_bps / 1e6)} Mbit/s in a second, "
        f"{rate.period_s:,.6g} s, longest gap {_round(rate.gap_s)} s"
    )


def _round(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def _settings(source: Path, out: Path | None, recording: Recording) -> Iterator[str]:
    rates = _rates(recording)
    yield "[groups.link]"
    for name, rate in rates:
        path = source
        if out is not None:
            path = out if len(rates) == 1 else out.with_name(f"{out.stem}-{name}{out.suffix}")
            with refusal_of(f"{path} cannot be written", "name another file"):
                stored.write(path, rate)
        yield f'{"trace_up" if name == "up" else "trace"} = "{path}"'
    if recording.rtt_s:
        yield f'rtt = "{DURATIONS.text(round(recording.rtt_s, 4))}"'
    if recording.loss:
        yield f"loss = {min(0.5, recording.loss):.3g}"

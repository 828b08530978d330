"""Reads FedScale's availability traces without running any code that their file contains.

FedScale (Lai et al., FedScale: Benchmarking Model and System Performance of Federated Learning at
Scale, ICML 2022) ships `client_behave_trace` as a pickle. Plain data can be nested deeply, or
contain itself, so messages show only numbers and text.
"""

import sys
from itertools import chain
from pathlib import Path

from muster.client.availability.traces import AvailabilityTrace
from muster.common.errors import ConfigError
from muster.common.recorded_lines import content_of
from muster.emulator.fleet.plain_pickle import load_plain


def import_fedscale(path: Path) -> dict[str, AvailabilityTrace]:
    """Import FedScale's traces by client from the pickle at `path`.

    The pickle holds `{client: {"active": [s, …], "inactive": [s, …], "finish_time": s, …}, …}`. A
    device is available in [active_i, inactive_i), repeated with the period `finish_time`. (FedScale
    counts the instant inactive_i itself as available.) `duration` and `model` are not used.

    Raises:
        ConfigError: the file cannot be read, holds something other than plain data, or has
            intervals that are not in order.
    """
    clients = _plain(path)
    if type(clients) is not dict or not clients:
        raise ConfigError(
            f"{path}: expected FedScale's traces by client, found {_kind(clients)}; "
            f"FedScale's benchmark data has them in client_behave_trace"
        )
    traces = dict[str, AvailabilityTrace]()
    for client, entry in clients.items():
        if not _names_client(client) or str(client) in traces:
            raise ConfigError(
                f"{path}: expected the number or name of every client once, found {_shown(client)}"
            )
        try:
            traces[str(client)] = _trace(entry)
        except ValueError as error:
            raise ConfigError(
                f"{path}, client {_shown(client)}: {error}; correct or remove the client"
            ) from None
    return traces


def _plain(path: Path) -> object:
    if path.suffix in (".csv", ".json"):
        raise ConfigError(
            f"{path}: expected FedScale's client_behave_trace, which is a pickle; found a "
            f"{path.suffix} file. Traces in CSV or JSON need no import: name the file in a group's "
            f'availability = {{ kind = "trace", file = "{path.name}" }}'
        )
    try:
        content = content_of(path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        return load_plain(content)
    except ValueError as error:
        raise ConfigError(
            f"{path}: expected a pickle of only dicts, lists, numbers and text, {error}; no code "
            f"of the file was run. If you trust the file, convert its traces to CSV or JSON instead"
        ) from None


def _names_client(found: object) -> bool:
    return type(found) is str or (type(found) is int and found.bit_length() <= 64)


def _trace(entry: object) -> AvailabilityTrace:
    if type(entry) is not dict:
        raise ValueError(f"expected a dict, found {_kind(entry)}")
    active, inactive = (_seconds(key, entry.get(key)) for key in ("active", "inactive"))
    if len(active) != len(inactive):
        raise ValueError(
            f"expected as many inactive as active times, found {len(active)} active and "
            f"{len(inactive)} inactive"
        )
    [finish] = _seconds("finish_time", [entry.get("finish_time")])
    edges: list[float] = []
    latest = 0.0
    for edge in chain.from_iterable(zip(active, inactive, strict=True)):
        if not latest <= edge <= finish:
            raise ValueError(
                f"expected intervals in order, between 0 and finish_time = {finish:g}; found "
                f"{edge:g} after {latest:g}"
            )
        latest = edge
        # Merge an interval with the previous one if it begins where that one ends, and skip empty
        # intervals.
        if edges and edges[-1] == edge:
            edges.pop()
        else:
            edges.append(edge)
    start = bool(edges) and edges[0] == 0
    return AvailabilityTrace(start, tuple(edge for edge in edges if 0 < edge < finish), finish)


def _seconds(key: str, found: object) -> list[float]:
    if type(found) is not list:
        raise ValueError(f"expected {key} to be a list of seconds, found {_kind(found)}")
    for number in found:
        if type(number) not in (int, float) or not abs(number) <= sys.float_info.max:
            raise ValueError(f"expected {key} to be finite seconds, found {_shown(number)}")
    return [float(number) for number in found]


def _kind(found: object) -> str:
    return "nothing" if found is None or found == {} else type(found).__name__


def _shown(found: object) -> str:
    shows = found is None or type(found) in (bool, float) or _names_client(found)
    return f"{found!r:.100}" if shows else _kind(found)

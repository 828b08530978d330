"""FedScale's availability traces, read without running anything that their file says.

FedScale (Lai et al., FedScale: Benchmarking Model and System Performance of Federated Learning at
Scale, ICML 2022) ships `client_behave_trace` as a pickle, and a pickle is a program: it may name
any function and call it. Here only plain data can come out of one; a name is refused before it is
looked up.
"""

import math
import pickle
from itertools import chain
from pathlib import Path
from typing import NoReturn

from muster.client.availability.traces import AvailabilityTrace
from muster.common.errors import ConfigError


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"found the name {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("found a reference to something outside the file")


def import_fedscale(path: Path) -> dict[str, AvailabilityTrace]:
    """Read `{client: {"active": [s, …], "inactive": [s, …], "finish_time": s, …}, …}`.

    A device is available in [active_i, inactive_i), replayed modulo `finish_time`. (FedScale counts
    the instant inactive_i itself as available.) `duration` and `model` are not used.

    Raises:
        ConfigError: the file cannot be read, holds something other than plain data, or intervals
            that are not in order.
    """
    clients = _plain(path)
    if type(clients) is not dict or not clients:
        raise ConfigError(
            f"{path}: expected FedScale's traces by client, found {_kind(clients)}; "
            f"client_behave_trace of FedScale's benchmark data is such a file"
        )
    traces = dict[str, AvailabilityTrace]()
    for client, entry in clients.items():
        if type(client) not in (int, str) or str(client) in traces:
            raise ConfigError(
                f"{path}: expected every client's number or name once, found {client!r:.100}"
            )
        try:
            traces[str(client)] = _trace(entry)
        except ValueError as error:
            raise ConfigError(
                f"{path}, client {client!r:.100}: {error}; correct the client, or take it out"
            ) from None
    return traces


def _plain(path: Path) -> object:
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file).load()
    except OSError as error:
        raise ConfigError(f"cannot read the traces {path}: {error.strerror}") from None
    except pickle.UnpicklingError as error:
        reason = str(error)
    # What is no pickle, or a damaged one, can raise nearly everything.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    raise ConfigError(
        f"{path}: expected a pickle of dicts, lists, numbers and text alone, {reason}; nothing of "
        f"it was run. Where you trust the file, write it as CSV or JSON of traces instead"
    )


def _trace(entry: object) -> AvailabilityTrace:
    if type(entry) is not dict:
        raise ValueError(f"expected a dict, found {_kind(entry)}")
    active, inactive = (_seconds(key, entry.get(key)) for key in ("active", "inactive"))
    if len(active) != len(inactive):
        raise ValueError(
            f"expected as many ends as beginnings, found {len(active)} of active and "
            f"{len(inactive)} of inactive"
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
        # An interval that begins where one ends goes on with it; an empty one is none.
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
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"expected {key} to be finite seconds, found {number!r:.100}")
    return [float(number) for number in found]


def _kind(found: object) -> str:
    return "nothing" if found is None or found == {} else type(found).__name__

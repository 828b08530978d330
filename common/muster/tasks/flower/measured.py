"""The metrics that an app's `ServerApp` notes of its rounds. Flower keeps them in a `Result` of the
message API, or in a `History` of the legacy one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import contextmanager
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any

from flwr.server.history import History
from flwr.serverapp.strategy import Result

from muster.common.bounds import APP_METRICS, LONGEST_METRIC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

log = logging.getLogger("muster.flower")

_TRAIN, _EVALUATE, _SERVER = "train", "evaluate", "server"
"""What the strategy aggregated of training, and of evaluation on nodes; and what the `ServerApp`
measured by itself. Names of metrics begin with one of them."""

_OF_RESULT = {
    "train_metrics_clientapp": _TRAIN,
    "evaluate_metrics_clientapp": _EVALUATE,
    "evaluate_metrics_serverapp": _SERVER,
}
_OF_HISTORY = {
    "metrics_distributed_fit": _TRAIN,
    "metrics_distributed": _EVALUATE,
    "metrics_centralized": _SERVER,
    "losses_distributed": _EVALUATE,  # after the metrics, of which one may be a `loss` too
    "losses_centralized": _SERVER,
}


class NotedMetrics:
    """Finds what is new in the records of metrics that an app makes. It changes no record, because
    apps store them."""

    def __init__(self) -> None:
        self._records: list[Result | History] = []
        self._seen: dict[tuple[int, str, str], int] = {}
        self._warned = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Learn of the records that are made meanwhile."""
        kinds: list[Any] = [Result, History]
        begins = [kind.__init__ for kind in kinds]
        for kind, begin in zip(kinds, begins, strict=True):
            kind.__init__ = self._noting(begin)
        try:
            yield
        finally:
            for kind, begin in zip(kinds, begins, strict=True):
                kind.__init__ = begin

    def _noting(self, begin: Callable[..., None]) -> Callable[..., None]:
        def begin_and_note(record: Any, *given: Any, **named: Any) -> None:
            begin(record, *given, **named)
            self._records.append(record)

        return begin_and_note

    def new(self) -> dict[str, float | str]:
        """The metrics that were noted since the last call, the newest of each name.

        A number that is not finite becomes "nan", "inf" or "-inf". What is no number, has a long
        name, or is one too many is left out.
        """
        found: dict[str, float | str] = {}
        for name, value in self._unseen():
            known = name in found or len(found) < APP_METRICS
            if isinstance(value, Real) and known and len(name) <= LONGEST_METRIC_NAME:
                number = float(value)
                found[name] = number if math.isfinite(number) else str(number)
            else:
                self._warn(name)
        return found

    def _unseen(self) -> Iterator[tuple[str, Any]]:
        for place, record in enumerate(self._records):
            attributes = _OF_RESULT if isinstance(record, Result) else _OF_HISTORY
            for attribute, kind in attributes.items():
                for column, entries in _columns(record, attribute).items():
                    key = place, attribute, column
                    for entry in islice(entries, self._seen.get(key, 0), None):
                        for name, value in entry.items() if column == "" else [(column, entry[1])]:
                            yield f"{kind}.{name}", value
                    self._seen[key] = len(entries)

    def _warn(self, name: str) -> None:
        if not self._warned:
            log.warning(
                "the metric %.200r is left out, and others may be: muster keeps numbers, at most "
                "%d of them in a round, with names of at most %d characters",
                name, APP_METRICS, LONGEST_METRIC_NAME,
            )  # fmt: skip
        self._warned = True


def _columns(record: Result | History, attribute: str) -> Mapping[str, Collection[Any]]:
    """The entries of a part of a record, which only become more: by the name of their metric, or
    under "" if each has metrics by name."""
    noted = getattr(record, attribute)
    if isinstance(record, Result):
        return {"": noted.values()}
    return noted if isinstance(noted, Mapping) else {"loss": noted}

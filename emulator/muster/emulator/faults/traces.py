"""Reads the traces of faults from the ledger of a run, also while it is running."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from muster.common.faults import LedgerTrace
from muster.emulator.results.ledger_file import open_ledger


class LedgerTraces:
    """The traces of faults in the ledger `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of_round(self, round: int) -> Mapping[str, LedgerTrace]:
        """The traces of all devices in a committed round, by client."""
        found: dict[str, LedgerTrace] = {}
        with closing(open_ledger(self._path)) as ledger:
            for client, decision, reason, state, modelled_s in ledger.execute(
                "SELECT client, decision, reason, state, modelled_s FROM answers WHERE round = ?",
                (round,),
            ):
                seen = json.loads(state) if state else {}
                found[client] = LedgerTrace(decision, reason or "", seen, modelled_s)
            for client, call_round, outcome, reason in ledger.execute(
                "SELECT client, call_round, outcome, reason FROM contributions "
                "WHERE call_round IN (?, ?)",
                (round, round - 1),
            ):
                trace = found.get(client, LedgerTrace())
                row = outcome, reason or ""
                if call_round == round:
                    # A device whose answer came with its update has accepted.
                    decision = trace.decision or "accept"
                    found[client] = trace._replace(decision=decision, updates=[*trace.updates, row])
                elif outcome != "folded":
                    found[client] = trace._replace(earlier=[*trace.earlier, row])
        return found

    def usual_s(self, clients: Sequence[str], before: int) -> Mapping[str, float]:
        """The median of each device's modelled seconds in the rounds before `before`."""
        wanted, found = set(clients), dict[str, list[float]]()
        with closing(open_ledger(self._path)) as ledger:
            for client, modelled_s in ledger.execute(
                "SELECT client, modelled_s FROM answers WHERE round < ? AND decision = 'accept' "
                "AND modelled_s IS NOT NULL",
                (before,),
            ):
                if client in wanted:
                    found.setdefault(client, []).append(modelled_s)
        return {client: statistics.median(values) for client, values in found.items()}


_FOLLOWED = ("round_opened", "round_committed", "ended", "fault_")


def journal_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal from which the course of faults follows, in order."""
    if not path.exists():
        return
    prefixes = tuple(f'{{"event":"{name}'.encode() for name in _FOLLOWED)
    with path.open("rb") as file:
        for line in file:
            if line.startswith(prefixes):
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError:  # torn by a full disk or a power cut
                    continue


def recorded_events(path: Path) -> set[tuple[str, str, int]]:
    """(event, fault, number) of all events of faults in a journal; number 0 if they have none."""
    return {
        (line["event"], line["fault"], line.get("number", 0))
        for line in journal_lines(path)
        if line["event"].startswith("fault_")
    }

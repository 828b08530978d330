"""Reads the account of a run (its ledger and journal) from its folder, also during the run.

Rule 1: this module does not write. The ledger is opened read-only, so a report can never harm a
run.

Rule 2: an `Account` shows one moment. All its tables are read in a single transaction of SQLite's
write-ahead log, so rounds and contributions agree even while a server adds to them. Open another
`Account` to see later rounds.
"""

import json
import math
import sqlite3
import tomllib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import orjson
import pandas as pd

from muster.common.clock_kinds import is_lockstep
from muster.common.errors import ConfigError, LedgerError
from muster.common.events import AppMeasured
from muster.common.toml import parse_toml
from muster.emulator.records.calls import OUTCOMES, calls_of
from muster.emulator.records.ledger_file import damaged, open_ledger
from muster.emulator.run_folder.folder import JOURNAL, LEDGER, SCENARIO
from muster.emulator.run_folder.journal_tail import journal_events
from muster.server.account.run_rows import RUN, RunRow
from muster.server.account.tables import LEDGER_TABLES

TABLES: Final = tuple(table.name for table in LEDGER_TABLES if not table.private)
"""The tables of the ledger that an `Account` shows. The others are the server's own records."""

_TRAFFIC = ["at", "seconds", "bytes_up", "bytes_down", "capacity_up", "capacity_down"]

# NULL in a REAL column becomes NaN, in a TEXT column <NA>; only nullable integers need Int64.
_DTYPES = {"REAL": "float64", "INTEGER": "Int64", "TEXT": "string"}


def _sorted(table: str, order: str) -> "cached_property[pd.DataFrame]":
    """A table of the ledger, sorted by columns, as a property of an account."""

    def read(account: "Account") -> pd.DataFrame:
        return account._table(table, order)

    return cached_property(read)


class Account:
    """The tables of a run as pandas DataFrames, columns as in the ledger (docs/results.md).

    Args:
        folder: the run folder.
        answers_at_once: how many answers' covariates are parsed at once. A million JSON objects
            take a gigabyte, their columns some megabytes.

    Raises:
        LedgerError: there is no ledger, it is damaged, or its schema is not `SCHEMA_VERSION`.
    """

    rounds = _sorted("rounds", "round")
    answers = _sorted("answers", "round, client")
    contributions = _sorted("contributions", "round, client, attempt, at")
    clients = _sorted("clients", "position")
    evaluations = _sorted("evaluations", "version")
    group_evaluations = _sorted("group_evaluations", 'version, "group"')
    device_evaluations = _sorted("device_evaluations", "version, client")
    valuations = _sorted("valuations", "round, client")
    faults = _sorted("faults", "at, target")
    transfers = _sorted("transfers", "round, began_at, client, direction")

    def __init__(self, folder: Path, answers_at_once: int = 20_000) -> None:
        self.folder = folder
        self._answers_at_once = answers_at_once
        self._path = folder / LEDGER
        self._connection = open_ledger(self._path)
        # An account that is never closed must not hold the write-ahead log for ever.
        self._finalizer = weakref.finalize(self, self._connection.close)
        self.run = self._run_row()

    def close(self) -> None:
        """End the transaction; tables that were read before stay usable."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def table(self, name: str) -> pd.DataFrame:
        """The table of this name, one of `TABLES`."""
        found: pd.DataFrame = getattr(self, name)
        return found

    @cached_property
    def calls(self) -> pd.DataFrame:
        """One row for every call, and for every round in which a device was absent.

        `client` and `group` are categories in the order of the population; `fate` is one of
        `FATES`, `reason` the reason that was given, `battery` the charge that was reported. Each
        call has one row, whatever was sent for it. A call without any answer or update has no row;
        only on the wall and scaled clocks does `answers` have the clients of such calls.
        """
        # This does not use `answers`: a million rows of its JSON take seconds and a gigabyte.
        rows = self._query(
            "SELECT round, client, decision, reason, json_extract(state, '$.battery') FROM answers "
            "WHERE decision <> 'silent'"
        )
        answers = pd.DataFrame(rows, columns=["round", "client", "decision", "reason", "battery"])
        sent = self.contributions
        committed = sent[sent["call_round"].isin(self.rounds["round"])]
        return calls_of(answers, committed, self.clients)

    @cached_property
    def work(self) -> pd.DataFrame:
        """The `round`, `client`, `modelled_s` and reported `network` of every call that a device
        accepted, also of those that it gave up later."""
        rows = self._query(
            "SELECT round, client, modelled_s, json_extract(state, '$.network') FROM answers "
            "WHERE decision IN ('accept', 'abort')"
        )
        columns = ["round", "client", "modelled_s", "network"]
        return pd.DataFrame(rows, columns=columns).astype({"modelled_s": "float64"})

    @cached_property
    def counts_versions(self) -> bool:
        """Whether `server.rounds` of the scenario counts versions instead of rounds."""
        return any(event.get("counts") == "versions" for event in self.events("server_started"))

    @cached_property
    def has_lives(self) -> bool:
        """Whether any device reported a simulated state."""
        return bool(self._query("SELECT 1 FROM answers WHERE state IS NOT NULL LIMIT 1"))

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """The traffic that gateways reported: a row for each event `traffic` of the journal.

        Columns: `group`; `at`, the end of the interval, and `seconds`, its length; the delivered
        bytes `bytes_up` and `bytes_down`; the bytes that the shared link could have delivered,
        `capacity_up` and `capacity_down`, NaN without a shared link. Events with missing numbers
        are skipped.
        """
        return _traffic(self.events("traffic"), ["group"])

    @cached_property
    def cell_traffic(self) -> pd.DataFrame:
        """The traffic of the cells of shared links: a row for each cell of each event `traffic` in
        which something moved. Columns: `group`, `cell`, and those of `traffic`."""
        rows = (
            {**event, **values, "cell": cell}
            for event in self.events("traffic")
            if isinstance(event.get("cells"), dict)
            for cell, values in event["cells"].items()
            if isinstance(values, dict)
        )
        return _traffic(rows, ["group", "cell"])

    @cached_property
    def z(self) -> pd.DataFrame:
        """Covariates Z of the devices whose Z is known, by client, in the order of the population.

        The table has a column for each covariate, with NaN for devices that lack it.
        """
        known = self.clients[["client", "z"]].dropna()
        with self._damage_refused():
            values = [orjson.loads(text) for text in known["z"]]
            return pd.DataFrame(values, index=pd.Index(known["client"]), dtype="float64")

    @cached_property
    def moments(self) -> dict[str, float]:
        """The population's means of the covariates Z by column, as the server knows them."""
        with self._damage_refused():
            means = dict(orjson.loads(self.run.moments))
            return {name: float(mean) for name, mean in means.items()}

    @cached_property
    def x(self) -> pd.DataFrame:
        """Covariates X of every answer that had any, by round and client.

        The table has a column for each covariate, with NaN for answers that lack it.
        """
        rows = self._query("SELECT round, client, x FROM answers WHERE x IS NOT NULL")
        calls = pd.DataFrame([row[:2] for row in rows], columns=["round", "client"])
        parts = [pd.DataFrame()]
        with self._damage_refused():
            for first in range(0, len(rows), self._answers_at_once):
                texts = ",".join(row[2] for row in rows[first : first + self._answers_at_once])
                parts.append(pd.DataFrame(orjson.loads(f"[{texts}]"), dtype="float64"))
            columns = pd.concat(parts, ignore_index=True)
            return columns.set_index(pd.MultiIndex.from_frame(calls))

    @cached_property
    def estimates(self) -> pd.DataFrame:
        """The estimates behind the rounds' weights: a row for each number and word.

        Columns: `round`; `name`; `key` within a table, else ""; `value`, NaN for a word; `word`,
        <NA> for a number.
        """
        rows = self._query("SELECT round, name, value FROM estimates ORDER BY round, name")
        kinds = {"round": "int64", "name": "category", "key": "category", "value": "float64",
                 "word": "string"}  # fmt: skip
        with self._damage_refused():
            flat = [
                (round, name, *entry)
                for round, name, text in rows
                for entry in _entries(json.loads(text))
            ]
            return pd.DataFrame(flat, columns=list(kinds)).astype(kinds)

    @cached_property
    def app_metrics(self) -> pd.DataFrame:
        """What the server side of an app measured, a row for each metric and round.

        Columns: `round`, 0 for the initial model; `metric`; `value`, NaN if it is not finite.
        """
        found = self.estimates[self.estimates["name"] == AppMeasured.name]
        numbers = found["value"].where(found["word"].isna(), np.nan)
        return pd.DataFrame(
            {"round": found["round"], "metric": found["key"].astype("string"), "value": numbers}
        ).reset_index(drop=True)

    @cached_property
    def warnings(self) -> pd.DataFrame:
        """The warnings of aggregators: a row for each event `warned` of the journal, with columns
        `at`, `round`, `by` and `warning`."""
        names = ["at", "round", "by", "warning"]
        rows = [[event.get(name) for name in names] for event in self.events("warned")]
        return pd.DataFrame(rows, columns=names)

    @cached_property
    def enrolled(self) -> int:
        """Clients that have enrolled at least once."""
        return int(self.clients["enrolled_at"].notna().sum())

    @cached_property
    def round_totals(self) -> pd.DataFrame:
        """`rounds` with `bytes_wasted`: bytes that went up in updates that were not folded."""
        sent = self.contributions
        # In lockstep an update travels in the round of its call, also if it counts in a later one.
        lockstep = is_lockstep(self.scenario.get("clock", {}).get("kind"))
        travelled = "call_round" if lockstep else "round"
        folded = sent[sent["outcome"] == "folded"].groupby(travelled)["bytes_up"].sum()
        useful = self.rounds["round"].map(folded).fillna(0).astype("int64")
        return self.rounds.assign(bytes_wasted=self.rounds["bytes_up"] - useful)

    @cached_property
    def traffic_totals(self) -> tuple[int, int]:
        """Bytes of all bodies that devices sent, and of all that they received."""
        rounds, run = self.rounds, self.run
        up, down = int(rounds["bytes_up"].sum()), int(rounds["bytes_down"].sum())
        return up + run.bytes_up, down + run.bytes_down

    @cached_property
    def client_totals(self) -> pd.DataFrame:
        """`clients` with a count for each of `OUTCOMES`, their bytes, and the mean `train_s`.

        The bytes of models and updates that travelled in chunks come from `transfers`; the bytes of
        others come from `answers` and `contributions`.
        """
        sent = self.contributions
        counts = pd.crosstab(sent["client"], sent["outcome"]).reindex(columns=list(OUTCOMES))
        by_client = sent.groupby("client")
        sums = by_client.agg({"bytes_up": "sum", "train_s": "mean"})
        models = self._query("SELECT client, sum(bytes_down) FROM answers GROUP BY client")
        totals = self.clients.join(counts, on="client").join(sums, on="client")
        totals["bytes_down"] = totals["client"].map(dict(models))
        for direction, moved in self.transfers.groupby("direction"):
            in_chunks = totals["client"].map(moved.groupby("client")["bytes"].sum())
            totals[f"bytes_{direction}"] = in_chunks.fillna(totals[f"bytes_{direction}"])
        whole = [*OUTCOMES, "bytes_up", "bytes_down"]
        totals[whole] = totals[whole].fillna(0).astype("int64")
        return totals

    @cached_property
    def scenario_text(self) -> str:
        """The text of the resolved scenario in the folder; empty if there is none."""
        path = self.folder / SCENARIO
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario, parsed.

        Raises:
            ConfigError: the file is not TOML.
        """
        try:
            return parse_toml(self.scenario_text, str(self.folder / SCENARIO))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{self.folder / SCENARIO}: expected the TOML that the run wrote, found: {error}; "
                f"restore the file, or remove it to do without it"
            ) from None

    @property
    def name(self) -> str:
        """The scenario's name; without one, the folder's name."""
        return str(self.scenario.get("name") or self.folder.resolve().name)

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """The journal's events with one of these `names`, in the order written.

        Lines that are not JSON (torn writes) are skipped.
        """
        events = journal_events(self.folder / JOURNAL, *map(json.dumps, names))
        return (event for event in events if event["event"] in names)

    def _table(self, name: str, order: str) -> pd.DataFrame:
        columns = self._query(f"SELECT name, type FROM pragma_table_info('{name}')")
        rows = self._query(f"SELECT * FROM {name} ORDER BY {order}")
        frame = pd.DataFrame(rows, columns=[column for column, _ in columns])
        # A column that an older ledger lacks has no type in its view, and one value in all rows.
        missing = {
            c: "REAL" if frame[c].isna().all() else "TEXT" for c, kind in columns if not kind
        }
        with self._damage_refused():
            whole = frame.astype({c: _DTYPES[kind or missing[c]] for c, kind in columns})
        filled = [c for c in whole if whole[c].dtype == "Int64" and not whole[c].hasnans]
        return whole.astype(dict.fromkeys(filled, "int64"))

    def _run_row(self) -> RunRow:
        self._table("run", "id")  # refuses values of another type
        rows = self._query(f"SELECT {RUN.names} FROM run")
        if not rows:
            raise LedgerError(
                f"{self._path}: the server has not begun the run yet; try again in a moment, or "
                f"look into {self.folder / 'logs'} for why it did not start"
            )
        return RunRow(*rows[0])

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._damage_refused():
            return self._connection.execute(sql).fetchall()

    @contextmanager
    def _damage_refused(self) -> Iterator[None]:
        """Refuse a ledger that cannot be read, or that has values which no server has written.
        SQLite itself keeps any value in any column."""
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError, RecursionError) as error:
            raise damaged(self._path, error) from error


def _entries(value: Any) -> Iterator[tuple[str, float, str | None]]:
    """Yield the key, number and word of each part of an estimate."""
    for key, part in (value if isinstance(value, dict) else {"": value}).items():
        if part is None or isinstance(part, (int, float)):
            yield key, math.nan if part is None else part, None
        else:
            yield key, math.nan, part if isinstance(part, str) else json.dumps(part)


def _traffic(events: Iterable[Mapping[str, Any]], whose: Sequence[str]) -> pd.DataFrame:
    """A table of traffic, without rows that lack a number.

    Args:
        whose: the columns that say whose traffic it is.
    """
    names = [*whose, *_TRAFFIC]
    rows = [[event.get(name) for name in names] for event in events]
    table = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(whose, "string"))
    table[_TRAFFIC] = table[_TRAFFIC].apply(pd.to_numeric, errors="coerce").astype("float64")
    table = table.replace([np.inf, -np.inf], np.nan)
    table = table[table["seconds"] > 0]
    return table.dropna(subset=[*whose, *_TRAFFIC[:4]]).reset_index(drop=True)

"""The evidence in a run folder: its ledger, journal, scenario and files, read as plain values."""

import copy
import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from muster.common.clock_kinds import is_lockstep
from muster.common.config import validate
from muster.common.errors import ConfigError, MusterError
from muster.common.own_code import use
from muster.common.toml import parse_toml
from muster.emulator.records.ledger_file import UNREADABLE, damaged, open_ledger
from muster.emulator.records.scenario_time import outlives_round
from muster.emulator.run_folder.folder import JOURNAL, LEDGER, SCENARIO
from muster.emulator.run_folder.journal_tail import journal_events
from muster.emulator.scenario.population import Resident, population, with_examples
from muster.emulator.scenario.reading import settled
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.tables import SCHEMA_VERSION
from muster.server.rpc.revocations import REVOKED
from muster.server.settings.process import ServerProcess
from muster.server.settings.secure import Secure

Row = sqlite3.Row

SLACK_S = 1.0
"""Most seconds by which a clock may be set back during a run, or be read late."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of one run.

    Attributes:
        folder: the run folder.
        ledger: the ledger, opened for reading, whose rows have names.
        evaluates: whether models are to be measured again.
    """

    folder: Path
    ledger: sqlite3.Connection
    evaluates: bool = False

    @classmethod
    def of(cls, folder: Path, evaluates: bool = False) -> "Evidence":
        """Open the evidence of a run folder.

        Raises:
            LedgerError: there is no ledger, or it cannot be read.
        """
        ledger = open_ledger(folder / LEDGER)
        ledger.row_factory = Row
        return cls(folder, ledger, evaluates)

    def rows(self, query: str, *values: Any) -> Iterator[Row]:
        """Yield the rows of a query.

        Raises:
            LedgerError: the ledger is damaged.
        """
        try:
            # `yield from` would close the cursor, also after the ledger.
            for row in self.ledger.execute(query, values):  # noqa: UP028
                yield row
        except UNREADABLE as error:
            raise damaged(self.folder / LEDGER, error) from None

    def one(self, query: str, *values: Any) -> Any:
        """The first value of the first row of a query; None without rows.

        Raises:
            LedgerError: the ledger is damaged.
        """
        row = next(self.rows(query, *values), None)
        return None if row is None else row[0]

    def counts(self, query: str) -> dict[Any, int]:
        """The rows of a query with two columns, as a table of the second one by the first."""
        return {row[0]: row[1] for row in self.rows(query)}

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario, with every default.

        Raises:
            ConfigError: it is missing, or is not TOML.
        """
        path = self.folder / SCENARIO
        try:
            return parse_toml(path.read_text(encoding="utf-8"), str(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: expected the scenario of the run, found {error}") from None

    @property
    def server(self) -> dict[str, Any]:
        """The `[server]` table of the scenario."""
        found = self.scenario.get("server")
        return found if isinstance(found, dict) else {}

    @property
    def secure(self) -> Secure | None:
        """The settings of secure aggregation; None if the run has none, or others than today's."""
        found = self.server.get("secure")
        try:
            return None if found is None else validate(Secure, found, "server.secure")
        except (MusterError, ValueError):
            return None

    @property
    def makes_again(self) -> bool:
        """Whether the run has kept what its versions are made from: updates, or secure sums."""
        kept = self.secure is not None and self.secure.keep_sums
        return kept or bool(self.server.get("keep_updates"))

    @property
    def mode(self) -> dict[str, Any]:
        """The settings of the mode, with its name as `kind`."""
        return _plug_in(self.server.get("mode", "synchronous"))

    @property
    def rule(self) -> dict[str, Any]:
        """The settings of the aggregator, with its name as `kind`."""
        return _plug_in(self.server.get("aggregator", "fedavg"))

    @property
    def lockstep(self) -> bool:
        """Whether the run was in lockstep."""
        return is_lockstep(self.scenario.get("clock", {}).get("kind", "rounds"))

    @property
    def recorded(self) -> bool:
        """Whether the run was played from a life record."""
        return "life" in self.scenario

    @property
    def outlives_round(self) -> bool:
        """Whether an update may count in a later round than that of its call."""
        return outlives_round(self.scenario)

    @cached_property
    def server_config(self) -> dict[str, Any]:
        """The configuration of the server's process.

        Raises:
            ConfigError: it is missing, or is not JSON.
        """
        path = self.folder / "setup/server.json"
        try:
            return dict(orjson.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{path}: expected the configuration that the run has written, found {error}"
            ) from None

    @cached_property
    def config(self) -> ServerProcess | str:
        """The configuration of the server's process, with the rule and the mode of the run, also
        those of the user's own; a sentence if they cannot be read."""
        try:
            if isinstance(modules := self.scenario.get("modules"), str):
                use(modules)
            return validate(ServerProcess, self.server_config, "setup/server.json")
        except (MusterError, ValueError) as error:
            return f"the configuration of the server cannot be read: {error}"

    @cached_property
    def planned(self) -> Scenario | str:
        """The scenario with its plug-ins; a sentence if it is none that could be run."""
        try:
            return settled(copy.deepcopy(self.scenario), str(self.folder / SCENARIO))
        except (MusterError, ValueError, OSError) as error:
            return f"the scenario cannot be run again: {error}"

    @cached_property
    def residents(self) -> Sequence[Resident]:
        """The population of the scenario; none if it cannot be run."""
        if isinstance(self.planned, str):
            return ()
        residents = population(self.planned)
        members = [] if isinstance(self.config, str) else self.config.population
        if len(members) != len(residents):
            return residents
        return with_examples(residents, [member.examples for member in members])

    @cached_property
    def status(self) -> str | None:
        """How the run has ended; None if it goes on, or its server was killed."""
        found = self.one("SELECT status FROM run")
        return None if found is None else str(found)

    @cached_property
    def servers(self) -> int:
        """How often a server has opened the run."""
        return int(self.one("SELECT incarnation FROM run") or 0)

    @cached_property
    def current(self) -> bool:
        """Whether the ledger has every column of today."""
        return bool(self.one("PRAGMA user_version") == SCHEMA_VERSION)

    @cached_property
    def reconnected(self) -> bool:
        """Whether a device has left before the run ended, and may have said some things twice."""
        for event in self.events():
            if event.get("event") == "left":
                return True
            if event.get("event") == "ended":
                return False
        return False

    @cached_property
    def revoked(self) -> bool:
        """Whether an operator has revoked credentials, so that devices left at any moment. A power
        cut takes the event from the journal, but not the file."""
        return (self.folder / REVOKED).exists() or any(
            event.get("event") == "revoked" for event in self.events()
        )

    @cached_property
    def set_back(self) -> bool:
        """Whether the clock of a server was set back during the run, as the journal tells."""
        told = (event["at"] for event in self.events() if event.get("role") == "server")
        return any(later < earlier for earlier, later in itertools.pairwise(told))

    @property
    def rounds_begun(self) -> bool:
        """Whether the ledger has a model, which a server enters when it opens the run."""
        return bool(self.one("SELECT count(*) FROM versions"))

    @property
    def undisturbed(self) -> bool:
        """Whether one server has begun and ended the run, so that its journal has every event."""
        return self.status is not None and self.servers == 1

    @cached_property
    def committed(self) -> dict[int, Row]:
        """The committed rounds by number."""
        return {row["round"]: row for row in self.rows("SELECT * FROM rounds ORDER BY round")}

    @cached_property
    def base_versions(self) -> dict[int, int]:
        """The base version of every committed round."""
        return {row["round"]: row["base_version"] for row in self.rows("SELECT * FROM rounds")}

    @cached_property
    def enrolled(self) -> list[str]:
        """The devices that may train, in the order of the population."""
        query = "SELECT client FROM clients WHERE enrolled ORDER BY position"
        return [row["client"] for row in self.rows(query)]

    def folded(self, round: int) -> list[Row]:
        """The updates that count in a round, in the order of its cohort: the columns of
        `contributions`, and `group`."""
        query = (
            'SELECT c.*, k."group" AS "group" FROM contributions c JOIN clients k USING (client) '
            "WHERE c.round = ? AND c.outcome = 'folded' ORDER BY c.call_round, k.position"
        )
        return list(self.rows(query, round))

    def estimates(self, round: int) -> dict[str, Any]:
        """The estimates of a round, by name."""
        query = "SELECT name, value FROM estimates WHERE round = ?"
        try:
            return {row["name"]: json.loads(row["value"]) for row in self.rows(query, round)}
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.folder / LEDGER, error) from error

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of the journal. Lines that a kill or a power cut has torn are left out."""
        return journal_events(self.folder / JOURNAL)


def _plug_in(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {"kind": str(value)}

"""The tables of the ledger, and the version of their schema."""

from muster.server.account.columns import LedgerTable
from muster.server.account.rows import (
    AnswerRow,
    ContributionRow,
    EstimateRow,
    RoundRow,
    TransferRow,
    ValuationRow,
)
from muster.server.account.run_rows import (
    DeviceEvaluationRow,
    EvaluationRow,
    FaultRow,
    GroupEvaluationRow,
    InputRow,
    MemberRow,
    MemoryRow,
    RunRow,
    SharedWorkRow,
    StateRow,
    VersionRow,
)

RUN = LedgerTable("run", RunRow, private=True)
INPUTS = LedgerTable("inputs", InputRow, ["kind", "name"], private=True)
CLIENTS = LedgerTable("clients", MemberRow, ["client"], numbered=True)
ROUNDS = LedgerTable("rounds", RoundRow, ["round"])
ANSWERS = LedgerTable(
    "answers",
    AnswerRow,
    ["round", "client"],
    index="CREATE INDEX entered_later ON answers (entered) WHERE entered IS NOT NULL;",
)
VALUATIONS = LedgerTable("valuations", ValuationRow, ["round", "client"])
CONTRIBUTIONS = LedgerTable(
    "contributions",
    ContributionRow,
    index="CREATE UNIQUE INDEX counted_once ON contributions (call_round, client) "
    "WHERE outcome = 'folded';",
)
TRANSFERS = LedgerTable("transfers", TransferRow)
ESTIMATES = LedgerTable("estimates", EstimateRow, ["round", "name"])
MEMORY = LedgerTable("memory", MemoryRow, ["client"], private=True)
SHARED_WORK = LedgerTable("shared_work", SharedWorkRow, ["client"], private=True)
EVALUATIONS = LedgerTable("evaluations", EvaluationRow, ["version"])
GROUP_EVALUATIONS = LedgerTable("group_evaluations", GroupEvaluationRow, ["version", "group"])
DEVICE_EVALUATIONS = LedgerTable("device_evaluations", DeviceEvaluationRow, ["version", "client"])
FAULTS = LedgerTable("faults", FaultRow)
VERSIONS = LedgerTable("versions", VersionRow, ["version"], private=True)
AGGREGATOR_STATE = LedgerTable("aggregator_state", StateRow, ["version"], private=True)

LEDGER_TABLES = (
    RUN, INPUTS, CLIENTS, ROUNDS, ANSWERS, VALUATIONS, CONTRIBUTIONS, TRANSFERS, ESTIMATES, MEMORY,
    SHARED_WORK, EVALUATIONS, GROUP_EVALUATIONS, DEVICE_EVALUATIONS, FAULTS, VERSIONS,
    AGGREGATOR_STATE,
)  # fmt: skip

OLDEST_SCHEMA = 6
"""The oldest version of the schema that can be read."""

SCHEMA_VERSION = max(
    13, *(column.stored.since for table in LEDGER_TABLES for column in table.columns)
)
"""`PRAGMA user_version`. A server goes on only with a ledger that has this version."""


def schema() -> str:
    """The statements that make an empty ledger."""
    tables = "\n".join(table.ddl for table in LEDGER_TABLES)
    return f"{tables}\nPRAGMA user_version = {SCHEMA_VERSION};"

"""The tables of the ledger, and the version of their schema."""

from muster.server.account import rows, run_rows

LEDGER_TABLES = (
    run_rows.RUN, run_rows.INPUTS, run_rows.CLIENTS, rows.ROUNDS, rows.ANSWERS, rows.VALUATIONS,
    rows.CONTRIBUTIONS, rows.TRANSFERS, rows.ESTIMATES, run_rows.MEMORY, run_rows.SHARED_WORK,
    run_rows.EVALUATIONS, run_rows.GROUP_EVALUATIONS, run_rows.DEVICE_EVALUATIONS, run_rows.FAULTS,
    run_rows.VERSIONS, run_rows.AGGREGATOR_STATE,
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

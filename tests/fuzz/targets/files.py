"""Targets: the files of a run folder, as a crash, a full disk or a stranger leaves them.

The readers of ledgers and state files get a valid file with changes, because other inputs would
hardly ever become one.
"""

import json
import sqlite3
import struct
from contextlib import closing, suppress
from functools import cache
from typing import Any

from tests.fuzz.mutation import json_mutation
from tests.fuzz.scratch import scratch, written
from tests.fuzz.target import Target, same

from muster.client.device.memory import STATE_FILE, Memory, RoundRecord, State
from muster.common.credentials import Callers, Credentials, GivenCredentials, read_credentials
from muster.common.errors import ConfigError, LedgerError, RunFailed, Unauthenticated
from muster.common.events import Evaluated, RoundCommitted
from muster.common.exchange import Key, Update
from muster.common.testing import made_credentials
from muster.emulator.gateway.words import Word, Words
from muster.emulator.records.account import Account
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_folder.folder import JOURNAL, LEDGER
from muster.emulator.run_folder.journal_tail import Tail
from muster.server.account.journal_recovery import newest, numbers
from muster.server.account.ledger import Ledger
from muster.server.account.page_sums import sums_path
from muster.server.account.rows import (
    AnswerRow,
    ContributionRow,
    EstimateRow,
    RoundRow,
)
from muster.server.account.run_rows import EvaluationRow, MemberRow, StoredVector
from muster.server.account.transaction import PendingTransaction
from muster.wire.bodies import checksum
from muster.wire.connections.encryption import tls_context

_CHANGE = struct.Struct("<IB")
"""A change of a file: where it begins, modulo the file's length, and how many bytes follow."""


def _changed(template: bytes, changes: bytes) -> bytes:
    """The template with changes; a change of no bytes cuts the file there."""
    data, at = bytearray(template), 0
    while at + _CHANGE.size <= len(changes) and data:
        where, length = _CHANGE.unpack_from(changes, at)
        at += _CHANGE.size
        where %= len(data)
        if length:
            new = changes[at : at + length]
            data[where : where + len(new)] = new
        else:
            del data[where:]
        at += length
    return bytes(data)


def _change(where: int, new: bytes) -> bytes:
    return _CHANGE.pack(where, len(new)) + new


# --- the state file of a device ------------------------------------------------------------------


def _records() -> list[RoundRecord]:
    body = bytes(range(40))
    update = Update(Key("a", 1, 1), 10, checksum(body), len(body), 1.0, 0.5, 0.25)
    before = State(life=(1.0, 2.0), own=b"own")
    after = State(1, b"residual", (3.0, 4.0), b"control", b"own")
    return [
        RoundRecord(1, b"m" * 16, before, after, update, body),
        RoundRecord(2, b"n" * 16, after, after._replace(life=(5.0,))),
    ]


@cache
def _state_file() -> bytes:
    folder = scratch("made-device")
    memory = Memory(folder)
    for record in _records():
        memory.hold(record)
    memory.close()
    return (folder / STATE_FILE).read_bytes()


def _read_state(data: bytes) -> tuple[RoundRecord, ...]:
    folder = scratch("device")
    folder.mkdir(exist_ok=True)
    # The first byte says whether the rest is the file itself.
    whole = data[:1] == b"\0"
    (folder / STATE_FILE).write_bytes(data[1:] if whole else _changed(_state_file(), data[1:]))
    memory = Memory(folder)
    held = memory.held
    memory.hold(_records()[0])
    memory.close()
    again = Memory(folder)
    assert _records()[0] in again.held, "a round that was held after the damage is there"
    again.close()
    return held


def _verify_state(held: tuple[RoundRecord, ...]) -> None:
    written_before = [*_records(), *(record._replace(body=b"") for record in _records())]
    assert all(record in written_before for record in held), "a record is whole or is not there"


# --- ledgers -------------------------------------------------------------------------------------


def _round(number: int) -> RoundRow:
    return RoundRow(
        number, number - 1, number, "committed", 2, 2, 2, 20.0, 20.0, 10.0, 2.0, 0.0, 60.0, None,
        None, 8, 8, 1.0, 2.0, 1.0,
    )  # fmt: skip


def _answer(round: int, client: str) -> AnswerRow:
    state, x = '{"battery": 0.5}', '{"load": 1.0}'
    return AnswerRow(round, client, "accept", None, state, x, 0.0, 5.0, 4, 1.0)


def _contribution(round: int, client: str) -> ContributionRow:
    return ContributionRow(
        round, client, round, 1, round - 1, 0, 0.5, 10, 1.0, 4, 4, 0, 1.0, 0.1, 0.5, "folded",
        None, 2.0,
    )  # fmt: skip


@cache
def _ledger_files() -> tuple[bytes, bytes]:
    """A ledger of two rounds, and the sums of its pages."""
    path = scratch("made.sqlite")
    ledger = Ledger(path)
    z = json.dumps({"age": 3.0})
    members = [MemberRow(client, "g", place, 10, True, z) for place, client in enumerate("ab")]
    ledger.begin("run", members, at=0.0, population=2, moments={"age": 3.0})
    model = StoredVector("00", 4, bytes(4))
    ledger.enter_initial(model, None)
    for round in (1, 2):
        pending = PendingTransaction(
            contributions=[_contribution(round, client) for client in "ab"],
            estimates=[EstimateRow(round, "share", '{"a": 0.5, "b": "word"}')],
        )
        ledger.commit(_round(round), [_answer(round, client) for client in "ab"], pending, model)
        ledger.evaluated(EvaluationRow(round, round, 0.5, 0.9, {"f1": 0.8}, 1.0, 3.0))
    ledger.end("completed", "", 5.0)
    ledger.close()
    return path.read_bytes(), sums_path(path).read_bytes()


def _content(ledger: Ledger) -> tuple[Any, ...]:
    """What a server that is started again reads."""
    return (
        ledger.newest_round(), ledger.newest_version(), ledger.model(2), ledger.kept(),
        ledger.evaluations(), list(ledger.participation()), ledger.memory(),
        ledger.counted_rounds(), ledger.covariates(), list(ledger.last_reports()),
        ledger.rounds_after(0), ledger.open_assignments(), ledger.busy_until_s(),
        ledger.declined(), ledger.traffic(), ledger.evaluations_after(0),
    )  # fmt: skip


def _read_damaged_ledger(data: bytes) -> tuple[Any, ...]:
    """The first byte says whether the ledger, the sums of its pages, or its log are changed."""
    ledger, sums = _ledger_files()
    which, changes = data[:1], data[1:]
    path = scratch("damaged.sqlite")
    path.write_bytes(_changed(ledger, changes) if which <= b"\x55" else ledger)
    sums_path(path).write_bytes(_changed(sums, changes) if b"\x55" < which <= b"\xaa" else sums)
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(changes if which > b"\xaa" else b"")
    opened = Ledger(path)
    content = _content(opened)
    opened.close()
    return content


@cache
def _undamaged_content() -> tuple[Any, ...]:
    return _read_damaged_ledger(b"\0")


def _verify_damaged_ledger(content: tuple[Any, ...]) -> None:
    assert same(content, _undamaged_content()), "damage is found, or it changes nothing"


_TABLES = (
    "answers", "calls", "client_totals", "clients", "contributions", "device_evaluations",
    "estimates", "evaluations", "faults", "group_evaluations", "moments", "round_totals", "rounds",
    "traffic", "traffic_totals", "transfers", "valuations", "warnings", "work", "x", "z",
)  # fmt: skip
"""What the report and the comparison of runs read."""


def _read_foreign_ledger(data: bytes) -> Account:
    """The input is JSON: a table to `read`, [table, column, value] of a `change` to make in the
    ledger, for which there are no sums, and a `journal`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    asked = found if isinstance(found, dict) else {}
    folder = scratch("run")
    folder.mkdir(exist_ok=True)
    (folder / JOURNAL).write_text(str(asked.get("journal", "")), errors="replace")
    (folder / LEDGER).write_bytes(_ledger_files()[0])
    with closing(sqlite3.connect(folder / LEDGER)) as ledger:
        _make_change(ledger, asked.get("change"))
        ledger.execute("PRAGMA journal_mode = DELETE")
    with Account(folder) as account:
        if asked.get("read") in _TABLES:
            getattr(account, asked["read"])
        return account


def _make_change(ledger: sqlite3.Connection, change: object) -> None:
    match change:
        case [str(table), str(column), None | str() | int() | float() as value] if (
            f"{table}{column}".isidentifier()
        ):
            # There is no such table or column, or it takes no such value.
            with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError), ledger:
                ledger.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))


# --- journals ------------------------------------------------------------------------------------


def _read_journal(data: bytes) -> None:
    path = scratch(JOURNAL)
    path.unlink(missing_ok=True)
    tail = Tail(path)
    path.write_bytes(data)
    assert all("event" in event for event in tail.new())
    found = numbers(path, {RoundCommitted: "round", Evaluated: "version"})
    if found[RoundCommitted] - {-1}:
        assert newest(path, RoundCommitted, "round") != -1 or -1 in found[RoundCommitted]
    with closing(sqlite3.connect(":memory:")) as none:
        assert all(isinstance(event, dict) for event in Evidence(path.parent, none).events())


_JOURNAL = (
    b'{"event":"round_committed","at":1.0,"role":"server","incarnation":1,"round":1,"version":1}\n'
    b'{"event":"evaluated","at":1.5,"role":"server","incarnation":1,"version":1,"round":1}\n'
    b'{"event":"traffic","at":2.0,"role":"supervisor","group":"g","seconds":1.0,"bytes_up":4,"byt'
)


# --- the words of a gateway ----------------------------------------------------------------------


def _read_words(data: bytes) -> list[Word]:
    return Words(written("words", data)).all()


def _verify_words(found: list[Word]) -> None:
    assert same(_read_words(b"".join(word.line for word in found)), found)


# --- credentials ---------------------------------------------------------------------------------


def _read_credentials(data: bytes) -> Credentials:
    path = written("credentials.json", data)
    path.chmod(0o600)
    found = read_credentials(path)
    if found.tls is not None:
        tls_context(found.tls, server_side=True)
    return found


def _verify_credentials(found: Credentials) -> None:
    assert same(Credentials.from_json(found.to_json()), found)
    caller = Callers(GivenCredentials(found))
    for known in found.callers:
        assert caller.named(known.name) == known


def _credentials() -> list[bytes]:
    device = made_credentials("device/a")
    server = made_credentials("server", [device], ["a"])
    tls = {"certificate": "", "key": "", "authority": ""}
    return [
        server.to_json().encode(),
        json.dumps({**json.loads(server.to_json()), "tls": tls}).encode(),
    ]


_KNOWN = Callers(GivenCredentials(made_credentials("server", [made_credentials("device/a")], "a")))

TARGETS = (
    Target(
        name="state-files",
        read=_read_state,
        refusals=(),
        verify=_verify_state,
        seeds=lambda: [
            b"\0",
            b"\1",
            b"\1" + _change(0, bytes(8)),
            b"\1" + _change(100, b"\xff" * 8) + _change(300, b""),
            b"\0" + _state_file(),
        ],
    ),
    Target(
        name="damaged-ledgers",
        read=_read_damaged_ledger,
        refusals=(LedgerError,),
        verify=_verify_damaged_ledger,
        seeds=lambda: [
            b"\0",
            b"\0" + _change(5000, b"\1"),
            b"\0" + _change(16, b"\2\0"),
            b"\x60" + _change(30, b"\1"),
            b"\xff" + bytes(64),
        ],
    ),
    Target(
        name="foreign-ledgers",
        read=_read_foreign_ledger,
        refusals=(LedgerError,),
        verify=lambda account: None,
        seeds=lambda: [
            *(json.dumps({"read": table}).encode() for table in _TABLES),
            json.dumps({"read": "traffic", "journal": _JOURNAL.decode()}).encode(),
            b'{"read": "rounds", "change": ["rounds", "folded", 7]}',
            b'{"read": "moments", "change": ["run", "moments", "{}"]}',
        ],
        mutate=json_mutation(
            *_TABLES, "read", "change", "run", "value", "state", "round", "client", "folded",
            "versions", "outcome", "loss", "decision", "{}", "[]", "null", "[{}]", '{"a": "b"}',
        ),
    ),
    Target(
        name="journals",
        read=_read_journal,
        refusals=(),
        verify=lambda found: None,
        seeds=lambda: [_JOURNAL],
    ),
    Target(
        name="slot-words",
        read=_read_words,
        refusals=(RunFailed,),
        verify=_verify_words,
        seeds=lambda: [Word(1, "a", True, 2).line + Word(2, "b", False, 2).line + b"[2, "],
    ),
    Target(
        name="credentials",
        read=_read_credentials,
        refusals=(ConfigError,),
        verify=_verify_credentials,
        seeds=_credentials,
        mutate=json_mutation("tls", "callers", "clients", "token", "name", "0" * 32, "é", "key"),
    ),
    Target(
        name="shown-tokens",
        read=_KNOWN.recognise,
        refusals=(Unauthenticated,),
        verify=lambda caller: None,
        seeds=lambda: [made_credentials("device/a").shown, bytes(16) + b"device/b"],
    ),
)  # fmt: skip

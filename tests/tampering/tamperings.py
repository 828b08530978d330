"""Tamperings with a finished run, generated from what its files are declared to have: the tables
and columns of the ledger, the events of the journal, and the keys and columns of the other files.

Each tampering is played twice: as an accident, which changes one place, and as a forgery, after
which the sums, the journal and the summary are made to agree again.
"""

import csv
import io
import json
import math
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import tomli_w
from tests.tampering.forgers import (
    journal,
    opened,
    repair_all,
    repair_inputs,
    write_journal,
)

from muster.common.errors import MusterError
from muster.emulator.records.inputs import MAY_CHANGE
from muster.emulator.scenario.reading import settled
from muster.server.account.tables import LEDGER_TABLES
from muster.server.settings.process import ServerProcess

Play = Callable[[Path, Random], bool]
"""Tampers with the run in a folder, and says whether there was anything to tamper with."""


class Tampering(NamedTuple):
    """A change of a run folder.

    Attributes:
        subject: what is changed: a table and column, an event and field, a file and key.
        act: `change`, `swap`, `delete` or `add`.
        forged: whether what follows from the ledger is made to agree with the change.
    """

    subject: str
    act: str
    forged: bool
    play: Play

    @property
    def name(self) -> str:
        return f"{self.act} {self.subject}{', and what follows' if self.forged else ''}"


def tamperings(folder: Path) -> list[Tampering]:
    """All tamperings with the run in a folder."""
    plain = [
        *_of_ledger(),
        *_of_journal(folder),
        *_of_summary(folder),
        *(t for name in ("population.csv", "plan.csv") for t in _of_table(folder, name)),
        *_of_scenario(folder),
        *_of_json(folder, "setup/server.json"),
        *_of_json(folder, "faults.json"),
        *_of_files(folder),
    ]
    forged = [_forged(t) for t in plain if t.subject.startswith(_FORGED)]
    return [*plain, *forged]


_FORGED = ("ledger ", "scenario.toml ")


def _forged(plain: Tampering) -> Tampering:
    def play(folder: Path, random: Random) -> bool:
        if not plain.play(folder, random):
            return False
        try:
            (repair_inputs if plain.subject.startswith("scenario") else repair_all)(folder)
        except (MusterError, sqlite3.Error, ValueError, TypeError, KeyError):
            return False  # what the change has left cannot be read, which the plain form tests
        return True

    return plain._replace(forged=True, play=play)


# --- values ---------------------------------------------------------------------------------------


def changed(value: Any, random: Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + random.choice([1, 2, 5])
    if isinstance(value, float):
        return value * 1.25 + 0.125 if math.isfinite(value) else 1.0
    if isinstance(value, bytes):
        return _flipped(value, random)
    if value is None:
        return 1
    if isinstance(value, list):
        return value[:-1] if value else [1]
    if isinstance(value, dict):
        if not value:
            return {"more": 1}
        key = random.choice(sorted(value))
        return {**value, key: changed(value[key], random)}
    return _changed_text(str(value), random)


def _changed_text(text: str, random: Random) -> str:
    if text.startswith(("{", "[")):
        return json.dumps(changed(json.loads(text), random))
    if not text:
        return "x"
    place = random.randrange(len(text))
    letter = "abcdef0123456789"[random.randrange(16)]
    return text[:place] + (letter if letter != text[place] else "x") + text[place + 1 :]


def _flipped(data: bytes, random: Random) -> bytes:
    if not data:
        return b"x"
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


# --- the ledger -----------------------------------------------------------------------------------


def _of_ledger() -> Iterator[Tampering]:
    for table in LEDGER_TABLES:
        for column in table.columns:
            subject = f"ledger {table.name}.{column.name}"
            yield Tampering(subject, "change", False, _changing(table.name, column.name))
            yield Tampering(subject, "swap", False, _swapping(table.name, column.name))
        yield Tampering(f"ledger {table.name}", "delete", False, _deleting(table.name))
        yield Tampering(f"ledger {table.name}", "add", False, _adding(table.name))


def _rows(ledger: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    return ledger.execute(f"SELECT * FROM {table}").fetchall()


def _update(ledger: sqlite3.Connection, table: str, row: sqlite3.Row, new: dict[str, Any]) -> bool:
    """Write new values into a row; whether the table allows it."""
    into = ", ".join(f'"{name}" = ?' for name in new)
    same = " AND ".join(f'"{name}" IS ?' for name in row.keys())
    if table == "contributions":
        same = f"rowid = (SELECT min(rowid) FROM {table} WHERE {same})"
    try:
        values = (*new.values(), *row)
        return ledger.execute(f"UPDATE {table} SET {into} WHERE {same}", values).rowcount > 0
    except sqlite3.IntegrityError:
        return False


def _changing(table: str, column: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        with opened(folder) as ledger:
            rows = _rows(ledger, table)
            rows = [row for row in rows if row[column] is not None] or rows
            if not rows:
                return False
            row = random.choice(rows)
            return _update(ledger, table, row, {column: changed(row[column], random)})

    return play


def _swapping(table: str, column: str) -> Play:
    """Swap the values of two rows, the second of which is the nearest that differs."""

    def play(folder: Path, random: Random) -> bool:
        with opened(folder) as ledger:
            rows = _rows(ledger, table)
            random.shuffle(rows)
            other = next((row for row in rows if row[column] != rows[0][column]), None)
            if other is None:
                return False
            ledger.execute("BEGIN")
            done = _update(ledger, table, rows[0], {column: other[column]})
            changed_row = dict(rows[0]) | {column: other[column]}
            if done and changed_row == dict(other):
                done = False  # both rows would be the same
            done = done and _update(ledger, table, other, {column: rows[0][column]})
            ledger.execute("COMMIT" if done else "ROLLBACK")
            return done

    return play


def _deleting(table: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        with opened(folder) as ledger:
            rows = _rows(ledger, table)
            if not rows:
                return False
            row = random.choice(rows)
            same = " AND ".join(f'"{name}" IS ?' for name in row.keys())
            return ledger.execute(f"DELETE FROM {table} WHERE {same}", tuple(row)).rowcount > 0

    return play


def _adding(table: str) -> Play:
    """Add a row like another, with the first key that is free."""

    def play(folder: Path, random: Random) -> bool:
        with opened(folder) as ledger:
            rows = _rows(ledger, table)
            if not rows:
                return False
            row = dict(random.choice(rows))
            marks = ", ".join("?" * len(row))
            for name in [name for name in row if row[name] is not None][:4]:
                for _ in range(3):
                    row[name] = changed(row[name], random)
                    try:
                        ledger.execute(f"INSERT INTO {table} VALUES ({marks})", [*row.values()])
                    except sqlite3.IntegrityError:
                        continue
                    return True
        return False

    return play


# --- the journal ----------------------------------------------------------------------------------


def _of_journal(folder: Path) -> Iterator[Tampering]:
    events = journal(folder)
    kinds = dict[str, set[str]]()
    for event in events:
        kinds.setdefault(event["event"], set()).update(event)
    for kind, fields in sorted(kinds.items()):
        for field in sorted(fields - {"event"}):
            yield Tampering(f"journal {kind}.{field}", "change", False, _telling(kind, field))
        yield Tampering(f"journal {kind}", "delete", False, _losing(kind))
        yield Tampering(f"journal {kind}", "add", False, _telling_twice(kind))
        yield Tampering(f"journal {kind}", "swap", False, _moving(kind))


def _places(events: list[dict[str, Any]], kind: str) -> list[int]:
    return [place for place, event in enumerate(events) if event["event"] == kind]


def _telling(kind: str, field: str) -> Play:
    """Change a field of an event."""

    def play(folder: Path, random: Random) -> bool:
        events = journal(folder)
        event = events[random.choice(_places(events, kind))]
        event[field] = changed(event.get(field), random)
        write_journal(folder, events)
        return True

    return play


def _losing(kind: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        events = journal(folder)
        del events[random.choice(_places(events, kind))]
        write_journal(folder, events)
        return True

    return play


def _telling_twice(kind: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        events = journal(folder)
        place = random.choice(_places(events, kind))
        events.insert(place, dict(events[place]))
        write_journal(folder, events)
        return True

    return play


def _moving(kind: str) -> Play:
    """Swap an event with another one far from it."""

    def play(folder: Path, random: Random) -> bool:
        events = journal(folder)
        place = random.choice(_places(events, kind))
        other = (place + len(events) // 2) % len(events)
        if events[place]["event"] == events[other]["event"]:
            return False
        events[place], events[other] = events[other], events[place]
        write_journal(folder, events)
        return True

    return play


# --- JSON, TOML and CSV ---------------------------------------------------------------------------


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in tables and lists that are neither."""
    if isinstance(value, dict) and value:
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path


def _edited(value: Any, path: tuple[Any, ...], random: Random, lose: bool) -> Any:
    head, *rest = path
    if rest:
        value[head] = _edited(value[head], tuple(rest), random, lose)
    elif lose:
        del value[head]
    else:
        value[head] = changed(value[head], random)
    return value


def _editing(file: str, path: tuple[Any, ...], lose: bool) -> Play:
    def play(folder: Path, random: Random) -> bool:
        target = folder / file
        before = _meaning(target)
        target.write_text(_text(file, _edited(_read(target), path, random, lose)))
        return before is None or _meaning(target) != before

    return play


def _meaning(path: Path) -> Any:
    """What a file of settings means with all defaults, to tell changes that are none; None if it
    means nothing."""
    try:
        if path.name == "scenario.toml":
            return settled(_read(path), str(path)).model_dump()
        if path.name == "server.json":
            return ServerProcess.from_json(path.read_text()).model_dump()
    except MusterError:
        return None
    return path.read_text()


def _read(path: Path) -> Any:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


def _text(file: str, value: Any) -> str:
    return tomli_w.dumps(value) if file.endswith(".toml") else json.dumps(value)


def _of_json(folder: Path, file: str) -> Iterator[Tampering]:
    if not (folder / file).exists():
        return
    seen = set[str]()
    for path in leaves(_read(folder / file)):
        name = ".".join(part for part in path if isinstance(part, str))
        if name in seen or (file == "scenario.toml" and name.startswith(MAY_CHANGE)):
            continue
        seen.add(name)
        yield Tampering(f"{file} {name}", "change", False, _editing(file, path, lose=False))
        yield Tampering(f"{file} {name}", "delete", False, _editing(file, path, lose=True))


def _of_summary(folder: Path) -> Iterator[Tampering]:
    yield from _of_json(folder, "summary.json")

    def add(folder: Path, random: Random) -> bool:
        path = folder / "summary.json"
        path.write_text(json.dumps({**_read(path), "worse": {"initial": {}, "final": {}}}))
        return True

    yield Tampering("summary.json", "add", False, add)


def _of_scenario(folder: Path) -> Iterator[Tampering]:
    yield from _of_json(folder, "scenario.toml")


def _of_table(folder: Path, file: str) -> Iterator[Tampering]:
    if not (folder / file).exists():
        return
    head = _table(folder / file)[0]
    for place, name in enumerate(head):
        yield Tampering(f"{file} {name}", "change", False, _cell(file, place))

    def editing(edit: Callable[[list[list[str]], Random], Any]) -> Play:
        def play(folder: Path, random: Random) -> bool:
            rows = _table(folder / file)
            edit(rows, random)
            _write_table(folder / file, rows)
            return True

        return play

    def swap(rows: list[list[str]], random: Random) -> None:
        one, two = random.sample(range(1, len(rows)), 2)
        rows[one], rows[two] = rows[two], rows[one]

    def row(rows: list[list[str]], random: Random) -> int:
        return random.randrange(1, len(rows))

    yield Tampering(file, "swap", False, editing(swap))
    yield Tampering(file, "delete", False, editing(lambda rows, r: rows.pop(row(rows, r))))
    yield Tampering(file, "add", False, editing(lambda rows, r: rows.append(rows[row(rows, r)])))


def _table(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text())))


def _write_table(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.write_text(text.getvalue())


def _cell(file: str, place: int) -> Play:
    def play(folder: Path, random: Random) -> bool:
        rows = _table(folder / file)
        row = rows[random.randrange(1, len(rows))]
        try:
            row[place] = repr(changed(float(row[place]), random))
        except ValueError:
            row[place] = _changed_text(row[place], random)
        _write_table(folder / file, rows)
        return True

    return play


# --- whole files ----------------------------------------------------------------------------------

_ELSEWHERE = ("devices", "logs", "setup/secrets", "programs")
"""Folders of which the audit makes nothing."""


def _of_files(folder: Path) -> Iterator[Tampering]:
    seen = set[str]()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name.startswith(_ELSEWHERE) or not path.stat().st_size:
            continue
        label = name if path.parent == folder else f"{path.parent.name}/*{path.suffix}"
        if label in seen or name.endswith(("-wal", "-shm")):
            continue
        seen.add(label)
        yield Tampering(f"file {label}", "delete", False, _removing(name))
        if path.suffix in (".safetensors", ".bin"):
            yield Tampering(f"file {label}", "change", False, _flipping(name))


def _removing(name: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        (folder / name).unlink()
        return True

    return play


def _flipping(name: str) -> Play:
    def play(folder: Path, random: Random) -> bool:
        (folder / name).write_bytes(_flipped((folder / name).read_bytes(), random))
        return True

    return play

"""The invariants of every history, whatever faults it has."""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from muster.server.rounds.staleness import staleness
from muster.simulation.disk import reading
from muster.simulation.faults import Break, Fault, Pause, PowerCut, Rogue
from muster.simulation.programs import Programs


def model_hash(folder: Path) -> str:
    """SHA-256 of the final model."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def broken_by(
    programs: Programs, folder: Path, faults: Sequence[Fault], expected: str | None
) -> Iterator[str]:
    """The invariants that a completed run in `folder` violates, a sentence each.

    Args:
        expected: hash of the model of the undisturbed run; None to skip the comparison.
    """
    with closing(reading(folder / "ledger.sqlite")) as ledger:
        yield from _rounds(programs, ledger)
        yield from _contributions(ledger)
        yield from _versions(ledger)
        yield from _evaluations(programs, ledger)
        yield from _memory(programs, ledger)
        yield from _journal(ledger, folder, faults)
        yield from _bytes(programs, ledger, folder, faults)
        yield from _downloads(ledger)
    yield from _silence(programs, folder, faults)
    yield from _leftovers(folder)
    if expected is not None and _reproducible(programs, faults):
        found = model_hash(folder)
        if found != expected:
            yield f"the model is {found[:12]}, and {expected[:12]} in the undisturbed run"


def _reproducible(programs: Programs, faults: Sequence[Fault]) -> bool:
    """Whether the model must equal that of the undisturbed run.

    This is so in lockstep with honest devices, unless a power cut took the state that devices keep
    from earlier rounds.
    """
    scenario = programs.scenario
    lives = any(pack.life is not None and pack.life.device.lives for pack in programs.packs)
    feedback = any(pack.compression.feedback for pack in programs.packs)
    rational = any(pack.utility is not None for pack in programs.packs)
    remembers = lives or feedback or rational or scenario.server.aggregator.control
    power_cut = any(isinstance(fault, PowerCut) for fault in faults)
    rogue = any(isinstance(fault, Rogue) for fault in faults)
    return scenario.clock.lockstep and not rogue and not (power_cut and remembers)


def _rounds(programs: Programs, ledger: sqlite3.Connection) -> Iterator[str]:
    status, detail = ledger.execute("SELECT status, detail FROM run").fetchone()
    if status != "completed":
        yield f"the ledger says that the run {status}: {detail}"
    settings = programs.scenario.server
    rounds = [row[0] for row in ledger.execute("SELECT round FROM rounds ORDER BY round")]
    versions = ledger.execute("SELECT max(version) FROM versions").fetchone()[0]
    count = versions if settings.mode.counts_versions else len(rounds)
    if rounds != list(range(1, len(rounds) + 1)) or count != settings.rounds:
        yield f"the ledger has the rounds {rounds} and {versions} versions"
    query = "SELECT round, base_version, version, outcome FROM rounds ORDER BY round"
    newest = 0
    for round, base_version, version, outcome in ledger.execute(query):
        if base_version != newest or version != newest + (outcome == "aggregated"):
            yield f"round {round} leads from version {base_version} to {version} ({outcome})"
        newest = version


def _contributions(ledger: sqlite3.Connection) -> Iterator[str]:
    twice = ledger.execute(
        "SELECT call_round, client FROM contributions WHERE outcome = 'folded' "
        "GROUP BY call_round, client HAVING count(*) > 1"
    )
    for round, client in twice:
        yield f"the work of {client} for its call in round {round} counts twice"
    query = (
        "SELECT r.round, r.folded, count(c.client) FROM rounds r LEFT JOIN contributions c "
        "ON c.round = r.round AND c.outcome = 'folded' GROUP BY r.round"
    )
    for round, folded, found in ledger.execute(query):
        if folded != found:
            yield f"round {round} folded {folded} updates and has {found} contributions"
    query = (
        "SELECT c.round, c.client, c.staleness, r.base_version, c.base_version "
        "FROM contributions c JOIN rounds r USING (round) WHERE c.outcome = 'folded'"
    )
    for round, client, recorded, newest, trained_from in ledger.execute(query):
        if recorded != staleness(newest, trained_from):
            yield f"the staleness of {client} in round {round} is not {recorded}"
    unsaid = ledger.execute(
        "SELECT c.round, c.client FROM contributions c LEFT JOIN answers a "
        "ON a.round = c.call_round AND a.client = c.client "
        "WHERE c.outcome = 'folded' AND a.decision IS NOT 'accept'"
    )
    for round, client in unsaid:
        yield f"{client} counts in round {round} and has not accepted its call"


def _versions(ledger: sqlite3.Connection) -> Iterator[str]:
    missing = ledger.execute(
        "SELECT version FROM rounds WHERE version NOT IN (SELECT version FROM versions)"
    )
    for (version,) in missing:
        yield f"version {version} is missing"


def _evaluations(programs: Programs, ledger: sqlite3.Connection) -> Iterator[str]:
    """Check that every version was evaluated that was due, and the last one."""
    settings = programs.scenario.server
    count = "version" if settings.mode.counts_versions else "round"
    query = (
        f"SELECT version FROM rounds WHERE outcome = 'aggregated' AND {count} % ? = 0 "
        "UNION SELECT max(version) FROM rounds EXCEPT SELECT version FROM evaluations"
    )
    for (version,) in ledger.execute(query, (settings.evaluate_every,)):
        yield f"version {version} was due for evaluation, and was not evaluated"


def _memory(programs: Programs, ledger: sqlite3.Connection) -> Iterator[str]:
    """Check that the newest update of every client that counted is the one that is remembered."""
    newest = ledger.execute(
        "SELECT client, max(round) FROM contributions WHERE outcome = 'folded' GROUP BY client"
    )
    remembered = dict(ledger.execute("SELECT client, round FROM memory"))
    remembers = programs.scenario.server.aggregator.remembers()
    expected = dict(newest) if remembers else {}
    if remembered != expected:
        yield f"the updates of {remembered} are remembered, not those of {expected}"


def _journal(ledger: sqlite3.Connection, folder: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """Check that the journal has every committed round and every evaluation exactly once."""
    events = list(_events(folder / "journal.jsonl"))
    for event, field, table in (
        ("round_committed", "round", "rounds"),
        ("evaluated", "version", "evaluations"),
    ):
        told = Counter(found[field] for found in events if found["event"] == event)
        known = {row[0] for row in ledger.execute(f"SELECT {field} FROM {table}")}
        if again := [number for number, times in told.items() if times > 1]:
            yield f"the journal tells {event} of {again} more than once"
        if told.keys() != known:
            missing, surplus = known - told.keys(), told.keys() - known
            yield f"{event}: the journal lacks {sorted(missing)} and invents {sorted(surplus)}"


def _silence(programs: Programs, folder: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """Check that no device counts as silent, unless a fault or its life silences devices."""
    silent = any(
        getattr(group.availability, "absence", None) == "silent"
        for group in programs.scenario.groups
    )
    silencing = (
        isinstance(fault, Rogue)
        or (isinstance(fault, Break) and fault.how == "silently")
        or (isinstance(fault, Pause) and fault.process != "server")
        for fault in faults
    )
    if not silent and not any(silencing):
        for event in _events(folder / "journal.jsonl"):
            if event["event"] == "left" and "silent" in event["why"]:
                yield f"{event['client']} is blamed: {event['why']}"


def _bytes(
    programs: Programs, ledger: sqlite3.Connection, folder: Path, faults: Sequence[Fault]
) -> Iterator[str]:
    """Check that every byte of a body is counted once, and that all totals agree."""
    rounds = "SELECT round, bytes_up, bytes_down FROM rounds"
    known = {round: counted for round, *counted in ledger.execute(rounds)}
    for event in _events(folder / "journal.jsonl"):
        if event["event"] == "round_committed":
            told, counted = [event["bytes_up"], event["bytes_down"]], known.get(event["round"])
            if told != counted:
                yield f"round {event['round']}: the journal tells {told} bytes, not {counted}"
    if not any(isinstance(fault, Rogue) for fault in faults):
        yield from _sums(ledger, programs.scenario.server.mode.outlives_round())


def _sums(ledger: sqlite3.Connection, outlives_round: bool) -> Iterator[str]:
    """Check that totals equal the bytes that travelled in chunks, or else inside other messages."""

    def one(query: str) -> int:
        return int(ledger.execute(f"SELECT coalesce(({query}), 0)").fetchone()[0])

    # If all models travel in chunks, every byte is in a row of a transfer.
    in_chunks = one("SELECT sum(bytes_down) FROM answers") == 0
    inside = {
        "up": "SELECT sum(bytes_up) FROM contributions c WHERE NOT EXISTS (SELECT 1 FROM transfers "
        "t WHERE direction = 'up' AND t.client = c.client AND t.round = c.call_round)",
        "down": "SELECT sum(bytes_down) FROM answers",
    }
    for way in ("up", "down"):
        in_rounds = one(f"SELECT sum(bytes_{way}) FROM rounds")
        total = in_rounds + one(f"SELECT bytes_{way} FROM run")
        found = one(f"SELECT sum(bytes) FROM transfers WHERE direction = '{way}'")
        if in_chunks:
            right = found == total
        else:
            # Partial sums travel in chunks even if models and updates do not. Bytes of a round that
            # was dropped are only in the total. So are those of updates that a restarted server
            # gets again, because their assignments were open.
            found += one(inside[way])
            right = (outlives_round or in_rounds <= found) and found <= total
        if not right:
            yield f"{total} bytes went {way}, {in_rounds} of them in rounds; found {found}"


def _downloads(ledger: sqlite3.Connection) -> Iterator[str]:
    """Check that every download that is complete has moved something: a device asks only for what
    it lacks."""
    empty = ledger.execute(
        "SELECT client, round, count(*) FROM transfers "
        "WHERE direction = 'down' AND ending = 'complete' AND bytes = 0 GROUP BY client, round"
    )
    for client, round, times in empty:
        yield f"{times} downloads of {client} for round {round} are complete and have no bytes"


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # torn by a power cut


def _leftovers(folder: Path) -> Iterator[str]:
    """Check that files of versions that are no longer needed were removed."""
    left = sorted(path.name for path in (folder / "models").iterdir())
    unfinished = [name for name in left if name.endswith(".tmp")]
    if len(left) > 2 or unfinished:
        yield f"models/ still has {left}"

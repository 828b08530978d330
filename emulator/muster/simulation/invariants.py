"""The invariants of every history, whatever faults it has."""

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from muster.common.exchange import Key
from muster.server.coordination.preparation import formats_of
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.settings.process import ServerProcess
from muster.simulation.disk import reading
from muster.simulation.faults import Break, Fault, Pause, PowerCut, RevokeAt, Rogue
from muster.simulation.programs import Programs
from muster.simulation.specification import Course, differences
from muster.wire import INLINE_BYTES

_DECIDED = {
    "rounds": "SELECT round, base_version, version, outcome, called, accepted, folded, normaliser, "
    "weight_sum, scenario_s, next_s, epsilon FROM rounds ORDER BY round",
    "answers": "SELECT round, client, decision, reason, state, x, x_age_s, modelled_s, away_steps "
    "FROM answers ORDER BY round, client",
    "contributions": "SELECT round, client, call_round, base_version, staleness, weight, examples, "
    "loss, steps FROM contributions WHERE outcome = 'folded' ORDER BY call_round, client",
    # What a device sends again changes nothing of what was decided first. What came while a run
    # failed, whose disk was full, is late, and comes again when the run is resumed.
    "outcomes": "SELECT call_round, client, outcome, iif(outcome = 'late', '', reason), "
    "min(rowid) > 0 FROM contributions "
    "WHERE outcome <> 'duplicate' AND reason IS NOT 'round closed' "
    "GROUP BY call_round, client ORDER BY call_round, client",
    "estimates": "SELECT round, name, value FROM estimates ORDER BY round, name",
    "valuations": "SELECT * FROM valuations ORDER BY round, client",
    "shared_work": "SELECT * FROM shared_work ORDER BY client",
}
"""What nothing that happens to processes may change in lockstep, by what it is about: who was
called, what devices said, who counted, and what was learned."""


class Undisturbed(NamedTuple):
    """What an undisturbed run has come to.

    Attributes:
        model: SHA-256 of the final model.
        decided: the rows of `_DECIDED`, and the checksums of the files of kept updates, which are
            in the order in which updates counted.
    """

    model: str
    decided: Mapping[str, list[Any]]


def undisturbed_in(folder: Path) -> Undisturbed:
    """What the run in a folder has come to, in which nothing happened to processes."""
    with closing(reading(folder / "ledger.sqlite")) as ledger:
        return Undisturbed(model_hash(folder), _decided(folder, ledger))


def _decided(folder: Path, ledger: sqlite3.Connection) -> dict[str, list[Any]]:
    found = {about: ledger.execute(query).fetchall() for about, query in _DECIDED.items()}
    kept = sorted(folder.glob("updates/*"))
    return {**found, "kept updates": [(path.name, crc32(path.read_bytes())) for path in kept]}


def model_hash(folder: Path) -> str:
    """SHA-256 of the final model."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def broken_by(
    programs: Programs, folder: Path, faults: Sequence[Fault], expected: Undisturbed | None
) -> Iterator[str]:
    """The invariants that a completed run in `folder` violates, a sentence each.

    Args:
        expected: what the undisturbed run has come to; None to skip the comparison.
    """
    if not _reproducible(programs, faults):
        expected = None
    with closing(reading(folder / "ledger.sqlite")) as ledger:
        yield from _status(ledger)
        yield from differences(course_of(programs, faults), ledger, folder / "devices")
        yield from _versions(ledger)
        yield from _journal(ledger, folder, faults)
        yield from _bytes(programs, ledger, folder, faults)
        yield from _downloads(ledger)
        if programs.scenario.clock.lockstep and not any(isinstance(f, RevokeAt) for f in faults):
            yield from _missing_sums(programs.server, ledger)
        yield from _leftovers(folder, ledger)
        if expected is not None:
            yield from _other_course(_decided(folder, ledger), expected.decided)
    yield from _silence(programs, folder, faults)
    if expected is not None:
        found = model_hash(folder)
        if found != expected.model:
            yield f"the model is {found[:12]}, and {expected.model[:12]} in the undisturbed run"


def _other_course(
    found: Mapping[str, list[Any]], expected: Mapping[str, list[Any]]
) -> Iterator[str]:
    """Check that a run has decided what the undisturbed run has decided."""
    for about, rows in expected.items():
        if found[about] != rows:
            pairs = zip_longest(found[about], rows)
            was, should_be = next((a, b) for a, b in pairs if a != b)
            yield f"{about}: {was}, and {should_be} in the undisturbed run"


def _reproducible(programs: Programs, faults: Sequence[Fault]) -> bool:
    """Whether all that was decided, and the model, must equal those of the undisturbed run.

    This is so in lockstep with honest devices that are not revoked, unless a power cut took the
    state that devices keep from earlier rounds.
    """
    scenario = programs.scenario
    lives = any(pack.life is not None and pack.life.device.lives for pack in programs.packs)
    feedback = any(pack.compression.feedback for pack in programs.packs)
    rational = any(pack.utility is not None for pack in programs.packs)
    recent = any("recent" in group.covariates.x.values() for group in scenario.groups)
    remembers = lives or feedback or rational or recent or scenario.server.aggregator.control
    power_cut = any(isinstance(fault, PowerCut) for fault in faults)
    others = any(isinstance(fault, Rogue | RevokeAt) for fault in faults)
    return scenario.clock.lockstep and not others and not (power_cut and remembers)


def course_of(programs: Programs, faults: Sequence[Fault]) -> Course:
    """What the specification needs to know of a history."""
    scenario, server = programs.scenario, programs.scenario.server
    mode, rule = server.mode, server.aggregator
    honest = not scenario.faults and not any(isinstance(fault, Rogue) for fault in faults)
    rational = any(group.participation.rational for group in scenario.groups)
    # What a device has trained before it was revoked is in no account.
    lost = any(isinstance(fault, PowerCut | RevokeAt) for fault in faults)
    return Course(
        lockstep=scenario.clock.lockstep,
        mode=mode.kind,
        rounds=server.rounds,
        goal=server.round_goal(),
        deadline_s=server.deadline_s,
        minimum=server.minimum,
        k=getattr(mode, "k", None),
        max_staleness=getattr(mode, "max_staleness", None),
        window_s=server.deadline_s if mode.kind == "opportunistic" else None,
        evaluate_every=server.evaluate_every,
        waits=rule.kind == "mifa" or rule.announces,
        remembers=rule.remembers(),
        learns=rule.kind == "importance",
        alone=honest and not any(group.shared_link.gateway for group in scenario.groups),
        honest=honest,
        states=scenario.clock.lockstep and honest and not rational and not lost,
        step_s=scenario.clock.round_s,
        modelled=scenario.clock.kind == "modelled",
        concurrency=getattr(mode, "concurrency", None),
        privacy=_privacy(programs),
    )


def _privacy(programs: Programs) -> tuple[float, float, str, bool] | None:
    """By how many standard deviations of the noise a release differs at most, δ, what a release is,
    and whether ε is exact; None: there is no noise, or sampling amplifies it."""
    privacy = programs.server.server.privacy
    if privacy is None or not privacy.noise:
        return None
    place = privacy.place
    if place.amplified and programs.server.sample is not None:
        return None
    of = "version" if place.in_versions else "round"
    return place.distance / privacy.noise, privacy.delta, of, not place.in_sums


def _status(ledger: sqlite3.Connection) -> Iterator[str]:
    status, detail = ledger.execute("SELECT status, detail FROM run").fetchone()
    if status != "completed":
        yield f"the ledger says that the run {status}: {detail}"


def _versions(ledger: sqlite3.Connection) -> Iterator[str]:
    missing = ledger.execute(
        "SELECT version FROM rounds WHERE version NOT IN (SELECT version FROM versions)"
    )
    for (version,) in missing:
        yield f"version {version} is missing"


def _journal(ledger: sqlite3.Connection, folder: Path, faults: Sequence[Fault]) -> Iterator[str]:
    """Check that the journal has every committed round and every evaluation exactly once."""
    events = list(events_of(folder / "journal.jsonl"))
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
        for event in events_of(folder / "journal.jsonl"):
            if event["event"] == "left" and "silent" in event["why"]:
                yield f"{event['client']} is blamed: {event['why']}"


def _bytes(
    programs: Programs, ledger: sqlite3.Connection, folder: Path, faults: Sequence[Fault]
) -> Iterator[str]:
    """Check that every byte of a body is counted once, and that all totals agree."""
    rounds = "SELECT round, bytes_up, bytes_down FROM rounds"
    known = {round: counted for round, *counted in ledger.execute(rounds)}
    for event in events_of(folder / "journal.jsonl"):
        if event["event"] == "round_committed":
            told, counted = [event["bytes_up"], event["bytes_down"]], known.get(event["round"])
            if told != counted:
                yield f"round {event['round']}: the journal tells {told} bytes, not {counted}"
    if not any(isinstance(fault, Rogue) for fault in faults):
        yield from _sums(
            ledger, _all_in_chunks(programs), programs.scenario.server.mode.outlives_round()
        )


def _all_in_chunks(programs: Programs) -> bool:
    """Whether no model travels inside a call: all are large, or all devices are behind links."""
    scenario, server = programs.scenario, programs.server
    size = server.tensors.body_bytes * scenario.server.aggregator.vectors()
    return size > INLINE_BYTES or server.shared.keys() >= {group.name for group in scenario.groups}


def _sums(ledger: sqlite3.Connection, in_chunks: bool, outlives_round: bool) -> Iterator[str]:
    """Check that totals equal the bytes that travelled in chunks, or else inside other messages.

    Args:
        in_chunks: whether all models travel in chunks; then every byte is in a row of a transfer.
    """

    def one(query: str) -> int:
        return int(ledger.execute(f"SELECT coalesce(({query}), 0)").fetchone()[0])

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
            # was dropped are only in the total. So are those of assignments that stay open: of
            # models whose devices never answer, and of updates that a restarted server gets again.
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


def _missing_sums(config: ServerProcess, ledger: sqlite3.Connection) -> Iterator[str]:
    """Check that no sum is missing, in lockstep and unless a process was revoked, but secure ones
    of too few devices that train the same part of the model."""
    devices = (
        EnrolledDevice(member.client, member.group, place, member.examples)
        for place, member in enumerate(config.population)
    )
    formats = formats_of(config, config.tensors, Fleet(devices))
    least = config.server.minimum if config.server.secure else 0
    of_sums = defaultdict[int, list[tuple[Key, str | None]]](list)
    for round, reason, *key in ledger.execute(
        "SELECT round, reason, client, call_round, attempt FROM contributions "
        "WHERE outcome = 'folded' OR reason = 'sum missing' ORDER BY rowid"
    ):
        of_sums[round].append((Key(*key), reason))
    for round, updates in of_sums.items():
        for part in formats.parts([key for key, _ in updates]):
            missing = [updates[at][0].client for at in part.places if updates[at][1]]
            if missing and len(part.places) >= least:
                yield f"the sum with the update of {missing[0]} of round {round} is missing"


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a journal, without lines that are torn."""
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # torn by a power cut


def _leftovers(folder: Path, ledger: sqlite3.Connection) -> Iterator[str]:
    """Check that files of versions that are no longer needed were removed, and that updates are
    kept of the rounds that made a version, and of no other."""
    left = sorted(path.name for path in (folder / "models").iterdir())
    unfinished = [name for name in left if name.endswith(".tmp")]
    if len(left) > 2 or unfinished:
        yield f"models/ still has {left}"
    made = ledger.execute("SELECT round FROM rounds WHERE version > base_version AND folded")
    kept = {int(path.stem) for path in folder.glob("updates/*.safetensors")}
    if kept and kept != (expected := {round for (round,) in made}):
        yield f"updates/ has the rounds {sorted(kept)}, expected {sorted(expected)}"

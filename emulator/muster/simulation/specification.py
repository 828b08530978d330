"""A small sequential specification of a run, against which every history is checked.

It imports nothing of the product. It goes through the rounds of the ledger in their order, believes
what devices said (that they accept, and how long their work takes), and says what the server must
have decided: which versions there are, who counts with which staleness, who is late, what is
evaluated, remembered and learned, and what a device must still know after all restarts.
"""

import json
import math
import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

_LATE, _FOLDED = "late", "folded"
_ORDERS = [1 + step / 20 for step in range(1, 1000)]

_GIVEN_UP = frozenset({"drop-out", "interrupted", "powered off", "slot taken", "training failed"})
"""The reasons of a device that accepted and then trained nothing."""

_RECORD = struct.Struct("<QQ24xQ8xQ120x13I")
"""Of a record in the file of a device, behind 8 bytes of checksum: its number, its round, the
rounds trained with it, the examples of its update, and the lengths of what follows."""


@dataclass(frozen=True)
class Course:
    """What the specification needs to know of a scenario."""

    lockstep: bool  # modelled seconds decide who counts; otherwise the order of arrival does
    mode: str  # "synchronous", "opportunistic" or "buffered"
    rounds: int  # the number of rounds, or of versions in the buffered mode
    goal: int | None
    deadline_s: float | None
    minimum: int
    k: int | None
    concurrency: int | None
    max_staleness: int | None
    window_s: float | None  # scenario seconds after which a round of the opportunistic mode ends
    evaluate_every: int
    waits: bool  # the rule may make no version of updates that count, or one of none
    remembers: bool  # the rule remembers the last update of every device
    learns: bool  # the rule enters the shares of devices in the means of all rounds
    honest: bool  # no device breaks the protocol or acts under a fault
    alone: bool  # nor are links shared, so that a device's own time decides
    states: bool  # devices know the rounds that they trained, and no others
    modelled: bool  # a round lasts as long as its modelled work
    step_s: float  # scenario seconds of a step of the devices' lives
    privacy: tuple[float, float, str, bool] | None  # what `_spent` needs, if there is noise


@dataclass
class CalledWork:
    """The work of a device for one call."""

    round: int
    client: str
    base: int  # the version that the device was called with
    modelled_s: float  # its own seconds
    finish_s: float  # scenario seconds at which it is finished
    outcome: str = ""  # empty while it is open
    reason: str | None = None
    counted_in: int = 0  # the round


@dataclass
class Recorded:
    """What the ledger of a completed run says."""

    rounds: list[Row]
    work: dict[tuple[int, str], CalledWork]
    contributions: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class KeptRound:
    """A round in the file of a device."""

    number: int
    round: int
    trained: int  # how many rounds it has trained, with this one
    examples: int  # of its update; 0: there is none
    life: tuple[float, ...]  # its step and state before the round
    control: tuple[bytes, bytes]  # its control variates before and after


def differences(course: Course, ledger: sqlite3.Connection, devices: Path) -> Iterator[str]:
    """Yield in which sentences a completed run differs from the specification; the folder `devices`
    has the state files of its devices."""
    account = _account(ledger)
    yield from _versions(course, account)
    yield from _counted(course, account)
    if course.lockstep and course.alone:
        check = _synchronous if course.mode == "synchronous" else _carrying
        yield from check(course, account)
    yield from _evaluated(course, account, ledger)
    yield from _remembered(course, account, ledger)
    if course.learns:
        yield from _learned(account, ledger)
    if course.privacy:
        yield from _spent(*course.privacy, account)
    if course.honest:
        yield from _as_told(ledger)
    if course.states:
        yield from _kept(course, account, devices)


def _rows(ledger: sqlite3.Connection, query: str) -> list[Row]:
    cursor = ledger.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _account(ledger: sqlite3.Connection) -> Recorded:
    rounds = _rows(ledger, "SELECT * FROM rounds ORDER BY round")
    account = Recorded(rounds, {})
    for said in _rows(
        ledger,
        "SELECT a.round, client, base_version, coalesce(modelled_s, 0.0) AS own_s, "
        "coalesce(scenario_s, 0.0) AS begun_s FROM answers a JOIN rounds USING (round) "
        "WHERE decision = 'accept'",
    ):
        number, client, base, own_s, begun_s = said.values()
        account.work[number, client] = CalledWork(number, client, base, own_s, begun_s + own_s)
    for row in _rows(ledger, "SELECT * FROM contributions ORDER BY round"):
        account.contributions[row["round"]].append(row)
        work = account.work.get((row["call_round"], row["client"]))
        # What a device sends again changes nothing of what was decided first.
        again = row["outcome"] == "duplicate" or (row["outcome"] == _LATE and work and work.outcome)
        if work is not None and not again and work.outcome != _FOLDED:
            work.outcome, work.reason = row["outcome"], row["reason"]
            work.counted_in = row["round"] if row["outcome"] == _FOLDED else 0
    return account


def _versions(course: Course, account: Recorded) -> Iterator[str]:
    """Rounds follow each other, and one makes a version if and only if enough updates count."""
    version = 0
    for number, row in enumerate(account.rounds, start=1):
        least = max(1, course.minimum, course.k or 0)
        makes = row["folded"] >= least
        if row["round"] != number:
            yield f"round {number} is missing"
        if row["base_version"] != version:
            yield f"round {number} begins with version {row['base_version']}, expected {version}"
        if not course.waits and (row["outcome"] == "aggregated") != makes:
            yield f"round {number} with {row['folded']} updates is {row['outcome']}"
        if not makes and row["folded"]:
            yield f"round {number} counts {row['folded']} updates, fewer than {least}"
        # On a clock that runs, further updates may arrive until a round has closed.
        if course.lockstep and course.k is not None and row["folded"] > course.k:
            yield f"round {number} counts {row['folded']} updates, expected {course.k}"
        open = _open(account, row) if course.lockstep else 0
        if course.concurrency and row["called"] + open > course.concurrency:
            yield f"round {number} calls {row['called']}, and {open} assignments are open"
        version += row["outcome"] == "aggregated"
        if row["version"] != version:
            yield f"round {number} ends with version {row['version']}, expected {version}"
    done = version if course.mode == "buffered" else len(account.rounds)
    if done != course.rounds:
        yield f"the run ended after {done}, expected {course.rounds}"


def _open(account: Recorded, opened: Row) -> int:
    """How many assignments that counted later were at work when a round opened."""
    number, opened_s = opened["round"], opened["scenario_s"]
    works = (work for work in account.work.values() if work.round < number <= work.counted_in)
    return sum(work.finish_s > opened_s for work in works)


def _counted(course: Course, account: Recorded) -> Iterator[str]:
    """Who counts had accepted a call, counts once, with its staleness, and was not too stale."""
    base_of = {row["round"]: row["base_version"] for row in account.rounds}
    times = Counter[tuple[int, str]]()
    for number, rows in account.contributions.items():
        for row in rows:
            who = f"{row['client']} of call {row['call_round']}"
            if row["outcome"] != _FOLDED:
                if row["reason"] == "stale" and 0 < row["staleness"] <= (course.max_staleness or 0):
                    yield f"{who} is too stale with {row['staleness']}"
                continue
            times[row["call_round"], row["client"]] += 1
            work = account.work.get((row["call_round"], row["client"]))
            if work is None:
                yield f"{who} counts in round {number}, and has not accepted"
                continue
            if row["base_version"] != work.base:
                yield f"{who} trained from {row['base_version']}, called with {work.base}"
            stale = base_of[number] - work.base
            if row["staleness"] != stale:
                yield f"{who} has staleness {row['staleness']} in round {number}, expected {stale}"
            if course.max_staleness is not None and stale > course.max_staleness:
                yield f"{who} counts in round {number} with staleness {stale}"
            if course.mode == "synchronous" and number != row["call_round"]:
                yield f"{who} counts in round {number}"
    for number, client in (call for call, count in times.items() if count > 1):
        yield f"{client} counts {times[number, client]} times for its call in round {number}"


def _arrived(account: Recorded) -> Iterator[CalledWork]:
    """The work whose update arrived whole, and was not refused."""
    for work in account.work.values():
        if work.outcome not in ("", "refused") and work.reason not in _GIVEN_UP:
            yield work


def _synchronous(course: Course, account: Recorded) -> Iterator[str]:
    """The first `goal` by modelled seconds count, of those that meet the deadline."""
    limit_s = math.inf if course.deadline_s is None else course.deadline_s
    ends = {row["round"]: row["next_s"] for row in account.rounds}
    by_round = defaultdict[int, list[CalledWork]](list)
    for work in _arrived(account):
        in_time = work.modelled_s <= limit_s
        if (work.outcome == _LATE) == in_time:
            took = f"{work.client} took {work.modelled_s:g} s in round {work.round}"
            yield f"{took}, with a deadline of {limit_s:g} s: {work.outcome} ({work.reason})"
        if in_time:
            by_round[work.round].append(work)
    made = {row["round"] for row in account.rounds if row["outcome"] == "aggregated"}
    for number, works in by_round.items():
        if number not in made:  # there were too few for the rule
            continue
        works.sort(key=lambda work: (work.modelled_s, work.client))
        first = {work.client for work in works[: course.goal] if work.reason != "sum missing"}
        first = first if len(first) >= course.minimum else set()
        found = {work.client for work in works if work.outcome == _FOLDED}
        if found != first:
            yield f"round {number} counts {sorted(found)}, expected {sorted(first)}"
        last_s = max((work.finish_s for work in works if work.outcome == _FOLDED), default=0.0)
        if course.modelled and last_s > ends[number] + 1e-9:
            yield f"round {number} ends at {ends[number]:g} s, and its work at {last_s:g} s"


def _carrying(course: Course, account: Recorded) -> Iterator[str]:
    """No update counts before it is finished; none that is finished is passed over by a later one;
    and a round of the opportunistic mode counts all that have finished in its window."""
    ends = {row["round"]: row["next_s"] for row in account.rounds}
    opened = {row["round"]: row["scenario_s"] for row in account.rounds}
    made = {row["round"] for row in account.rounds if row["outcome"] == "aggregated"}
    arrived = [work for work in _arrived(account) if work.outcome == _FOLDED]
    for work in arrived:
        end_s = ends[work.counted_in]
        if course.window_s is not None:
            end_s = opened[work.counted_in] + course.window_s
        if end_s is not None and work.finish_s > end_s + 1e-9:
            counts = f"{work.client} counts in round {work.counted_in}"
            yield f"{counts}, which ends at {end_s:g} s, and finishes at {work.finish_s:g} s"
        before = work.counted_in - 1
        if (
            course.window_s is not None
            and before >= work.round
            and before in made  # otherwise there were too few for the rule
            and work.finish_s <= opened[before] + course.window_s - 1e-9
            and not course.goal
        ):
            yield f"{work.client} finished in round {before}, and counts in {work.counted_in}"
    if course.k is not None:
        yield from _in_order(arrived)


def _in_order(arrived: list[CalledWork]) -> Iterator[str]:
    """In a buffer, updates count in the order in which they finish."""
    latest_s, of = -math.inf, ""
    for number in sorted({work.counted_in for work in arrived}):
        works = [work for work in arrived if work.counted_in == number]
        for work in works:
            if work.finish_s < latest_s - 1e-9 and work.round < number:
                yield f"{work.client} finished before {of}, which counts before round {number}"
        last = max(works, key=lambda work: work.finish_s)
        latest_s, of = max((latest_s, of), (last.finish_s, last.client))


def _evaluated(course: Course, account: Recorded, ledger: sqlite3.Connection) -> Iterator[str]:
    """Evaluated are version 0, the versions that are due, and the last one; nothing else."""
    due, last = {0}, 0
    for row in account.rounds:
        if row["outcome"] == "aggregated":
            last = row["version"]
            count = last if course.mode == "buffered" else row["round"]
            due |= {last} if count % course.evaluate_every == 0 else set()
    found = {row["version"] for row in _rows(ledger, "SELECT version FROM evaluations")}
    if found != due | {last}:
        yield f"the versions {sorted(found)} were evaluated, expected {sorted(due | {last})}"


def _remembered(course: Course, account: Recorded, ledger: sqlite3.Connection) -> Iterator[str]:
    """Remembered is the newest update that counted of every device, in its slots in turn."""
    newest, times = dict[str, int](), Counter[str]()
    for number, rows in sorted(account.contributions.items()):
        for row in rows:
            if row["outcome"] == _FOLDED and course.remembers:
                newest[row["client"]] = number
                times[row["client"]] += 1
    expected = {client: (number, (times[client] - 1) % 2) for client, number in newest.items()}
    rows = _rows(ledger, "SELECT client, round, slot FROM memory")
    found = {row["client"]: (row["round"], row["slot"]) for row in rows}
    if found != expected:
        yield f"remembered (round, slot) are {found}, expected {expected}"


def _learned(account: Recorded, ledger: sqlite3.Connection) -> Iterator[str]:
    """The share of a device is the mean of 1/|S| over all rounds, |S| devices of which counted."""
    sums = Counter[str]()
    entered = _rows(ledger, "SELECT round, value FROM estimates WHERE name = 'shares'")
    shares = {row["round"]: json.loads(row["value"]) for row in entered}
    for row in account.rounds:
        number, rows = row["round"], account.contributions[row["round"]]
        counted = [each["client"] for each in rows if each["outcome"] == _FOLDED]
        for client in counted:
            sums[client] += 1 / len(counted)  # type: ignore[assignment]
        if bool(counted) != (number in shares):
            yield f"round {number} with {len(counted)} updates: shares are in {sorted(shares)}"
        for client, share in shares.get(number, {}).items():
            if not math.isclose(share, sums[client] / number, abs_tol=1e-12):
                yield f"the share of {client} in round {number} is {share}, not {sums[client]}/…"


def _spent(shift: float, delta: float, of: str, exact: bool, account: Recorded) -> Iterator[str]:
    """ε leaks δ, exactly (Balle and Wang, 2018, theorem 8) or by the best Rényi divergence."""
    for row in (row for row in account.rounds if row[of]):
        mu, spent = math.sqrt(row[of]) * shift, row["epsilon"]
        near, far = (math.erfc((spent / mu + end) / math.sqrt(2)) / 2 for end in (-mu / 2, mu / 2))
        by = (a * mu**2 / 2 + math.log1p(-1 / a) - math.log(a * delta) / (a - 1) for a in _ORDERS)
        found = (near - math.exp(spent) * far, delta) if exact else (spent, min(by))
        if not math.isclose(*found, rel_tol=1e-3):
            yield f"ε of {row[of]} {of}s is {spent:g}, which leaks more or less than δ"


def _as_told(ledger: sqlite3.Connection) -> Iterator[str]:
    """Honest devices are refused nothing but values, and who gives up does not all of the work."""
    refused = "SELECT * FROM contributions WHERE outcome = 'refused'"
    for row in _rows(ledger, f"{refused} AND reason NOT IN ('norm', 'not finite', 'loss')"):
        yield f"{row['client']} of call {row['call_round']} is refused: {row['reason']}"
    for row in _rows(
        ledger,
        "SELECT a.* FROM answers a JOIN answers b USING (client, modelled_s) JOIN contributions c "
        "ON c.client = b.client AND c.call_round = b.round AND c.attempt = 1 WHERE modelled_s > 0 "
        "AND a.decision = 'abort' AND a.reason <> 'training failed' AND c.outcome = 'folded'",
    ):
        yield f"{row['client']} gave up in round {row['round']}, after all of its work"


def _kept(course: Course, account: Recorded, devices: Path) -> Iterator[str]:
    """A device knows its newest round and how many rounds it has trained: each once, however often
    a process died."""
    trained = defaultdict[str, set[int]](set)
    for work in account.work.values():
        if work.outcome and work.reason not in _GIVEN_UP:
            trained[work.client].add(work.round)
    opened_s = {row["round"]: row["scenario_s"] for row in account.rounds}
    step_of = {round: math.floor(s / course.step_s + 1e-9) for round, s in opened_s.items()}
    for client, rounds in trained.items():
        kept = _records(devices / client / "state.bin")
        if not kept or kept[-1].round < max(rounds):
            yield f"{client} has trained in round {max(rounds)}, and remembers {kept}"
            continue
        if kept[-1].round == max(rounds) and kept[-1].trained != len(rounds):
            yield f"{client} has trained in {sorted(rounds)}, and counted {kept[-1].trained}"
        yield from (f"{client} {differs}" for differs in _began(step_of, rounds, kept))
        older, newer = kept[0], kept[-1]
        if newer.control[0] and older.round < newer.round:
            sent = account.work.get((older.round, client))
            in_vain = older.examples and not (sent and 0 < sent.counted_in < newer.round)
            if newer.control[0] != older.control[0 if in_vain else 1]:
                yield f"{client} begins round {newer.round} with another control variate"


def _began(step_of: Mapping[int, int], trained: set[int], kept: list[KeptRound]) -> Iterator[str]:
    """A device begins a round at the step of its call, and knows how often it has trained lately:
    each time adds a tenth, and each step takes a tenth away."""
    for number, (step, *_, recent) in ((each.round, each.life) for each in kept if each.life):
        if step != step_of.get(number, step):
            yield f"begins round {number} at step {step:g}, not {step_of[number]}"
        before = [step_of[round] for round in trained if round < number]
        lately = sum(0.1 * 0.9 ** (step - earlier) for earlier in before)
        if not math.isclose(recent, lately, abs_tol=1e-9):
            yield f"begins round {number} with {recent:g} of late, not {lately:g}"


def _records(path: Path) -> list[KeptRound]:
    """The records in the file of a device, oldest first."""
    data = path.read_bytes() if path.exists() else b""
    found = []
    for slot in range(2 if data else 0):
        at = 16 + slot * struct.unpack_from("<Q", data)[0]
        if at + _RECORD.size > len(data):
            continue
        number, round, trained, examples, *lengths = _RECORD.unpack_from(data, at)
        ends = list(accumulate(lengths, initial=at + _RECORD.size))
        parts = [data[start:end] for start, end in pairwise(ends)]
        life = struct.unpack(f"<{len(parts[1]) // 8}d", parts[1])
        found.append(KeptRound(number, round, trained, examples, life, (parts[5], parts[6])))
    return sorted((kept for kept in found if kept.number), key=lambda kept: kept.number)

"""Checks of traffic: the bytes of models and updates, by call, by round and in all."""

import math
from collections import defaultdict
from itertools import pairwise

from muster.common.exchange import Reason
from muster.emulator.fleet.packs import packs_by_group
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog
from muster.wire import INLINE_BYTES

_ENDINGS = ("complete", "cut off", "broken")

_SENT = (
    "SELECT call_round, client, sum(bytes_up) AS up, sum(bytes_down) AS down, "
    "max(bytes_up) AS largest, sum(examples) AS examples FROM contributions "
    "GROUP BY call_round, client"
)
_MOVED = "SELECT round, client, sum(bytes) FROM transfers WHERE direction = ? GROUP BY 1, 2"


def check_traffic(evidence: Evidence, log: CheckLog) -> None:
    """The bytes of calls and updates add up to those of the rounds."""
    if evidence.revoked:
        log.skip("how bytes add up: an operator has revoked credentials")
        return
    if not evidence.current or not evidence.undisturbed or not evidence.lockstep:
        log.skip(
            "how bytes add up: a call that is repeated after a restart, or lost on a clock of real "
            "time, has bytes of which only the sum is known"
        )
        return
    up, down = (
        {(round, client): count for round, client, count in evidence.rows(_MOVED, way)}
        for way in ("up", "down")
    )
    inline_up, in_all_up = 0, sum(up.values())
    held, again = _held(evidence), evidence.reconnected
    called = {
        (row["round"], row["client"]): row["bytes_down"]
        for row in evidence.rows("SELECT round, client, bytes_down FROM answers")
    }
    for row in evidence.rows(_SENT):
        call = row["call_round"], row["client"]
        if row["client"] in held:
            log.compare("bytes of an update that its process holds", 0, row["up"], *call)
            right = again or row["down"] in (0, called.get(call, 0) + down.get(call, 0))
            log.require(right, "bytes of the model sent for its updates", "those of the call",
                        row["down"], *call)  # fmt: skip
            continue
        if call in up:
            log.compare("bytes of its updates", up[call], row["up"], *call)
        else:
            inside = row["largest"] <= INLINE_BYTES
            log.require(inside, "bytes of an update inside its answer", f"at most {INLINE_BYTES}",
                        row["largest"], *call)  # fmt: skip
            inline_up += row["up"]
        expected = called.get(call, 0) + down.get(call, 0) if row["examples"] else 0
        right = row["down"] == expected or ((again or call in down) and row["down"] < expected)
        log.require(right, "bytes of the model sent for its updates", str(expected), row["down"],
                    *call)  # fmt: skip
    _check_rounds(evidence, log)
    _check_packs(evidence, log)
    totals = "SELECT coalesce(sum(bytes_{0}), 0) + (SELECT bytes_{0} FROM run) FROM rounds"
    log.compare("bytes up of all rounds", in_all_up + inline_up, evidence.one(totals.format("up")))
    log.compare("bytes down of all rounds", sum(called.values()) + sum(down.values()),
                evidence.one(totals.format("down")))  # fmt: skip


def _check_packs(evidence: Evidence, log: CheckLog) -> None:
    """A round calls the devices of a process with one message, which has the model once."""
    if isinstance(planned := evidence.planned, str) or evidence.mode["kind"] == "buffered":
        return
    if evidence.reconnected:
        return  # devices that came back were called again
    query = "SELECT round, client, bytes_down FROM answers"
    called = {(round, client): size for round, client, size in evidence.rows(query)}
    narrow = {group.name for group in planned.groups if group.mask and group.mask.narrows()}
    for group, packs in packs_by_group(planned, evidence.residents).items():
        if group in narrow:
            continue  # each device gets its own part of the model
        pack_of = {client: pack for pack, clients in packs.items() for client in clients}
        models = defaultdict[tuple[int, str], int](int)
        for (round, client), size in called.items():
            if client in pack_of:
                models[round, pack_of[client]] += size > 0
        for (round, pack), found in models.items():
            log.require(found <= 1, f"models inside the calls of {pack}", "at most 1", found, round)


def _held(evidence: Evidence) -> set[str]:
    """The clients whose process sends sums in place of their updates."""
    if isinstance(config := evidence.config, str):
        return set()
    return {m.client for m in config.population if m.group in config.partial_sums}


def _check_rounds(evidence: Evidence, log: CheckLog) -> None:
    """Compare the bytes of every round. They travel before its commit, unless they travel in
    chunks, or an update comes again, or after its round has closed."""
    chunked = evidence.one("SELECT count(*) FROM transfers") > 0
    down = evidence.counts("SELECT round, sum(bytes_down) FROM answers GROUP BY round")
    if chunked:
        log.skip("the bytes of single rounds: a transfer may end after the commit of its round")
        return
    first = "SELECT min(rowid) FROM contributions GROUP BY call_round, client"
    later = f"(reason IS '{Reason.ROUND_CLOSED.value}' OR rowid NOT IN ({first}))"
    sent = "SELECT call_round, sum(bytes_up) FROM contributions WHERE {} {} GROUP BY 1"
    up = evidence.counts(sent.format("NOT", later))
    more = sum(evidence.counts(sent.format("", later)).values())
    for round, row in evidence.committed.items():
        least = up.get(round, 0)
        expected = f"from {least} to {least + more}" if more else str(least)
        log.require(least <= row["bytes_up"] <= least + more, "bytes up of the round", expected,
                    row["bytes_up"], round)  # fmt: skip
        log.compare("bytes down of the round", down.get(round, 0), row["bytes_down"], round)


def check_transfers(evidence: Evidence, log: CheckLog) -> None:
    """Every transfer belongs to a call, and its rate is its bytes by its seconds."""
    query = (
        "SELECT t.*, a.decision FROM transfers t LEFT JOIN answers a "
        "ON a.round = t.round AND a.client = t.client"
    )
    newest = max(evidence.base_versions, default=0)
    for row in evidence.rows(query):
        at = row["round"], row["client"]
        if evidence.lockstep and row["round"] <= newest:
            log.require(row["decision"] is not None, "call of the transfer",
                        "a call with an answer", row["decision"], *at)  # fmt: skip
        if evidence.undisturbed and not evidence.reconnected:
            log.compare("attempt of the transfer", 1, row["attempt"], *at)
        known = ", ".join(_ENDINGS)
        log.require(row["ending"] in _ENDINGS, "ending of the transfer", known, row["ending"], *at)
        ways = row["direction"] in ("up", "down")
        log.require(ways, "direction of the transfer", "up or down", row["direction"], *at)
        _check_numbers(row, log)
    if evidence.undisturbed and not evidence.reconnected and not evidence.revoked:
        _check_order(evidence, log)
        _check_sums(evidence, log)


def _check_order(evidence: Evidence, log: CheckLog) -> None:
    """A device works for one round after the other."""
    rounds = defaultdict[str, list[int]](list)
    for row in evidence.rows("SELECT round, client FROM main.transfers ORDER BY rowid"):
        rounds[row["client"]].append(row["round"])
    for client, entered in rounds.items():
        for before, round in pairwise(entered):
            log.require(before <= round, "round of the transfer", f"{before} or a later one", round,
                        round, client)  # fmt: skip


def _check_sums(evidence: Evidence, log: CheckLog) -> None:
    """A process that sends a sum in place of the updates of its devices has sent one."""
    query = "SELECT DISTINCT round, client FROM transfers WHERE direction = 'up'"
    held = _held(evidence)
    sent = {row["round"] for row in evidence.rows(query) if row["client"] in held}
    for round in evidence.committed if held else ():
        if any(row["client"] in held for row in evidence.folded(round)):
            log.require(round in sent, "transfers of partial sums", "some", "none", round)


def _check_numbers(row: Row, log: CheckLog) -> None:
    at = row["round"], row["client"]
    for name in ("bytes", "wait_s", "seconds", "attempt"):
        right = isinstance(row[name], int | float) and 0 <= row[name] < math.inf
        log.require(right, f"{name} of the transfer", "a number that is not negative", row[name],
                    *at)  # fmt: skip
        if not right:
            return
    rate = 8 * row["bytes"] / row["seconds"] if row["seconds"] and row["bytes"] else None
    compare(log, "rate of the transfer", rate, row["rate_bps"], *at)


CHECKS = (
    Check(
        "traffic",
        "In lockstep, the bytes of all calls, updates and transfers add up to those of the rounds.",
        check_traffic,
    ),
    Check(
        "transfers",
        "Every transfer belongs to a call, and its rate is its bytes by its seconds. A device "
        "works for one round after the other.",
        check_transfers,
    ),
)

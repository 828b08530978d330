"""The check of single updates: everything about them that follows from their call."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from muster.common.exchange import Key, Reason
from muster.common.facts import FACTS
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.repeated_rule import formats_of_run
from muster.emulator.run_audit.result import CheckLog
from muster.server.settings.process import ServerProcess
from muster.server.updates.formats import UpdateFormats

_REASONS: Mapping[str, frozenset[str | None]] = {
    "folded": frozenset({None}),
    "late": frozenset({Reason.DEADLINE, Reason.GOAL_REACHED, Reason.ROUND_CLOSED, Reason.STALE}),
    "duplicate": frozenset({None, *Reason}),
    "dropped": frozenset({None, *Reason}),
    "refused": frozenset(Reason),
}

_OF_FACTS = (*FACTS, "received_metrics")
"""The columns of what a device measures for an update if it is asked to."""

_FINAL = frozenset({Reason.DEADLINE, Reason.GOAL_REACHED, Reason.STALE})
"""Reasons of updates that are late although their round has judged them."""


class _Expected:
    """What is expected of the updates of a run."""

    def __init__(self, evidence: Evidence, config: ServerProcess) -> None:
        self._evidence = evidence
        self.config = config
        self.members = {member.client: member for member in config.population}
        self.held = set(config.partial_sums)
        self.set_back = evidence.set_back
        query = "SELECT round, contributions, opened_at, closed_at FROM rounds ORDER BY round"
        self.rounds = {row["round"]: row for row in evidence.rows(query)}

    @cached_property
    def formats(self) -> UpdateFormats:
        return formats_of_run(self._evidence, self.config)

    @cached_property
    def unasked(self) -> list[str]:
        """The columns of facts for which the run asks no device."""
        told = json.loads(self.config.training)
        measured = {name for name in _OF_FACTS if name.startswith("received_")}
        asked = measured if told.get("evaluate_every") else set()
        return [name for name in _OF_FACTS if name not in asked and not told.get(name)]

    @cached_property
    def counts_otherwise(self) -> bool:
        """Whether devices may report another number of examples or steps than theirs, because a
        fault says so, or because an app or a function of the user's own counts them."""
        planned = self._evidence.planned
        if not isinstance(planned, str) and (
            planned.task.hosted or any(each.trainer for each in planned.trainings)
        ):
            return True
        kinds = (fault.get("do") for fault in self._evidence.scenario.get("faults", ()))
        names = {kind.get("kind") if isinstance(kind, dict) else kind for kind in kinds}
        return "false-examples" in names

    def entered(self) -> Iterator[tuple[Row, Row | None]]:
        """Yield the rows of `contributions` in the order in which they were entered, each with the
        round whose commit has entered it; None: it was entered after the newest one."""
        bounds = iter(self.rounds.values())
        round = next(bounds, None)
        for row in self._evidence.rows("SELECT rowid, * FROM main.contributions ORDER BY rowid"):
            while round is not None and row["rowid"] > (round["contributions"] or 0):
                round = next(bounds, None)
            yield row, round


def check_updates(evidence: Evidence, log: CheckLog) -> None:
    """Every update says of itself what its device, its call and its group's codec give."""
    if isinstance(config := evidence.config, str):
        log.skip(f"what updates say of themselves: {config}")
    elif not evidence.current:
        log.skip("what updates say of themselves: the ledger is of an earlier muster")
    else:
        expected, place = _Expected(evidence, config), 0
        for row, round in expected.entered():
            place += 1
            at = row["round"], row["client"]
            log.compare("place among the rows, which are only added", place, row["rowid"], *at)
            place = row["rowid"]
            if row["client"] not in expected.members:
                log.require(False, "device", "one of the population", row["client"], *at)
                continue
            _check_numbers(row, expected, log)
            _check_fate(row, evidence.base_versions, log)
            _check_moment(row, round, expected, log)
        _check_count(expected, place, log)


def _check_numbers(row: Row, expected: _Expected, log: CheckLog) -> None:
    """Compare examples, steps, mask and bytes."""
    at, member = (row["round"], row["client"]), expected.members[row["client"]]
    key = Key(row["client"], row["call_round"], row["attempt"])
    # A call that a restarted server took over and never repeated has attempt 0.
    least = int(bool(row["examples"]))
    log.require(row["attempt"] >= least, "attempt", f"at least {least}", row["attempt"], *at)
    compare(log, "mask ratio", expected.formats.mask_ratio(key), row["mask_ratio"], *at)
    for name in ("train_s", "transfer_s"):
        right = row[name] is None or row[name] >= 0
        log.require(right, name, "a number that is not negative", row[name], *at)
    if row["outcome"] == "refused":  # nothing that it says can be relied on
        return
    for name in expected.unasked:
        log.compare(f"{name}, for which the run asks no device", None, row[name], *at)
    came = bool(row["examples"])
    if not came:
        for name in ("steps", "bytes_up", "bytes_saved"):
            log.compare(f"{name} of a call without an update", 0, row[name], *at)
        log.compare("loss of a call without an update", None, row["loss"], *at)
        return
    if not expected.counts_otherwise:
        log.compare("examples", member.examples, row["examples"], *at)
    if member.most_steps is not None and not expected.counts_otherwise:
        log.compare("steps", member.most_steps, row["steps"], *at)
    length = expected.formats.of(key).length
    saved = expected.formats.whole_bytes - length
    if row["outcome"] == "folded" or row["bytes_saved"]:
        log.compare("bytes saved", saved, row["bytes_saved"], *at)
    held = member.group in expected.held
    if row["outcome"] == "folded":
        right = row["bytes_up"] == 0 if held else row["bytes_up"] >= length
        log.require(right, "bytes of the update", "0" if held else f"at least {length}",
                    row["bytes_up"], *at)  # fmt: skip


def _check_fate(row: Row, bases: Mapping[int, int], log: CheckLog) -> None:
    """Compare the reason with the outcome."""
    at = row["round"], row["client"]
    known = _REASONS.get(row["outcome"], frozenset())
    shown = ", ".join(sorted(str(each) for each in known if each)) or "nothing"
    log.require(row["reason"] in known, "reason", shown, row["reason"], *at)
    if row["outcome"] != "folded":
        log.compare("round", row["call_round"], row["round"], *at)
    if row["outcome"] == "dropped" and row["call_round"] in bases:
        log.compare("base version", bases[row["call_round"]], row["base_version"], *at)
    if row["outcome"] not in ("folded", "late"):
        log.compare("staleness", 0, row["staleness"], *at)
    if row["reason"] != Reason.TRAINING_FAILED:
        log.compare("error of training that has not failed", None, row["error"], *at)


def _check_moment(row: Row, round: Row | None, expected: _Expected, log: CheckLog) -> None:
    """Compare when the outcome was decided, and with which commit it was entered."""
    at = row["round"], row["client"]
    if row["outcome"] == "folded":
        entered = None if round is None else round["round"]
        log.compare("round with whose commit it was entered", row["round"], entered, *at)
    call = expected.rounds.get(row["call_round"])
    if round is None or call is None or expected.set_back:
        return
    if row["outcome"] == "folded" or (row["outcome"] == "dropped" and row["reason"] != "stale"):
        log.compare("moment of the outcome", round["closed_at"], row["at"], *at)
    else:
        log.require(row["at"] <= round["closed_at"], "moment of the outcome",
                    f"until {round['closed_at']!r}", row["at"], *at)  # fmt: skip


def _check_count(expected: _Expected, place: int, log: CheckLog) -> None:
    """Compare the counts of rows in the rounds."""
    before = 0
    for round, row in expected.rounds.items():
        count = row["contributions"]
        right = count is not None and before <= count <= place
        log.require(right, "number of rows of contributions", f"from {before} to {place}", count,
                    round)  # fmt: skip
        before = count or before


def check_accepted(evidence: Evidence, log: CheckLog) -> None:
    """Every call that a device has accepted has led to one update, or to a row that says why
    not."""
    if evidence.recorded:
        log.skip("whether an update is missing: the life record says who sends none")
        return
    if not evidence.lockstep or not evidence.current:
        log.skip("whether an update is missing: devices may fall silent on this clock")
        return
    known = evidence.status == "completed" or not evidence.outlives_round
    fates = defaultdict[tuple[int, str], list[Row]](list)
    for row in evidence.rows("SELECT * FROM contributions"):
        fates[row["call_round"], row["client"]].append(row)
    query = "SELECT * FROM answers WHERE decision IN ('accept', 'abort') ORDER BY round, client"
    for answer in evidence.rows(query):
        at = answer["round"], answer["client"]
        final = [row for row in fates.get(at, ()) if _is_final(row)]
        refused = [row for row in fates.get(at, ()) if row["outcome"] == "refused"]
        repeated = len([row for row in final if row["outcome"] == "late"]) - 1
        if known and not refused:
            log.compare("rows of the accepted call", 1, len(final) - max(0, repeated), *at)
        for row in final if answer["decision"] == "abort" else ():
            found = row["outcome"], row["reason"]
            log.compare("outcome of a call that its device gave up", ("dropped", answer["reason"]),
                        found, *at)  # fmt: skip
    declined = {
        (row["round"], row["client"])
        for row in evidence.rows("SELECT round, client FROM answers WHERE decision = 'decline'")
    }
    for at in sorted(declined & fates.keys()):
        final = [row for row in fates[at] if _is_final(row)]
        log.compare("rows of a declined call", 0, len(final), *at)


def _is_final(row: Row) -> bool:
    """Whether a row says what became of a call, and not of an update that came once more."""
    if row["outcome"] == "late":
        return row["reason"] in _FINAL
    return row["outcome"] in ("folded", "dropped")


CHECKS = (
    Check(
        "updates",
        "Examples, local steps, mask, and the bytes of an update are those of its device, its call "
        "and its codec; what nobody has asked a device to measure is not there. Rows are only "
        "added, each with the commit of its round.",
        check_updates,
    ),
    Check(
        "accepted calls",
        "In lockstep, every accepted call has one row that says what became of it; a declined one "
        "has none.",
        check_accepted,
    ),
)

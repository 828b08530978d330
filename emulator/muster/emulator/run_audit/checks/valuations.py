"""The check of what rational devices say of the models that they get."""

from collections.abc import Sequence

from muster.client.life.participation import UtilitySettings
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import compare
from muster.emulator.run_audit.result import CheckLog

_QUERY = (
    'SELECT a.round AS round, a.client AS client, a.decision, a.reason, k."group" AS "group", '
    "v.round AS told, v.* FROM answers a JOIN clients k USING (client) "
    "LEFT JOIN valuations v ON v.round = a.round AND v.client = a.client ORDER BY a.round"
)


_CURVE = ("a", "b", "c", "threshold")


def check_valuations(evidence: Evidence, log: CheckLog) -> None:
    """Rational devices have valued every model, and decided by what they have measured."""
    if isinstance(evidence.planned, str):
        log.skip(f"what rational devices say: {evidence.planned}")
        return
    settings = {group.name: group.participation.rational for group in evidence.planned.groups}
    # Elsewhere a device may have lost its training, or trained without a call that is known.
    remembers = evidence.lockstep and evidence.undisturbed and not evidence.reconnected
    before = dict[str, list[Row]]()
    for row in evidence.rows(_QUERY):
        of_group, at = settings.get(row["group"]), (row["round"], row["client"])
        judged = row["decision"] in ("accept", "abort") or row["reason"] == "no gain"
        expected = of_group is not None and judged
        if remembers or not expected:  # after a restart, an update alone may tell of its answer
            log.compare("whether the device has valued the model", expected,
                        row["told"] is not None, *at)  # fmt: skip
        if of_group is None or row["told"] is None:
            continue
        _check_row(row, of_group, log)
        if remembers:
            _check_memory(row, before.get(row["client"], []), of_group, log)
        before.setdefault(row["client"], []).append(row)
    query = (
        "SELECT round, client FROM valuations v WHERE NOT EXISTS "
        "(SELECT 1 FROM answers a WHERE a.round = v.round AND a.client = v.client)"
    )
    for round, client in evidence.rows(query):
        log.require(False, "call of the valuation", "a call with an answer", None, round, client)


def _check_row(row: Row, settings: UtilitySettings, log: CheckLog) -> None:
    at = row["round"], row["client"]
    for name in ("received_accuracy", "own_accuracy", "r_squared"):
        right = row[name] is None or row[name] <= 1
        log.require(right, name, "at most 1", row[name], *at)
    curve = [row[name] is None for name in _CURVE]
    log.require(all(curve) or not any(curve), "curve", "all of its numbers or none", curve, *at)
    has_own = row["own_accuracy"] is not None
    forced = int(not has_own or row["round"] <= settings.forced_rounds)
    log.compare("forced", forced, row["forced"], *at)
    gains = None
    if row["own_accuracy"] is not None:
        least = (1 + settings.margin) * row["own_accuracy"] - settings.tolerance
        gains = int(row["received_accuracy"] > least)
    if not settings.cost_per_mb:
        log.compare("gains", gains, row["gains"], *at)
    if settings.test == "measured":
        accepts = bool(forced or row["gains"])
        decision = "accept, or gives up later" if accepts else "decline"
        log.require((row["decision"] != "decline") == accepts, "decision by its valuation",
                    decision, row["decision"], *at)  # fmt: skip


def _check_memory(row: Row, told: Sequence[Row], settings: UtilitySettings, log: CheckLog) -> None:
    """Compare a valuation with those that the device has told before."""
    at, before = (row["round"], row["client"]), told[-1] if told else None
    if before is None or before["decision"] == "accept":
        has_own = row["own_accuracy"] is not None
        log.compare("whether it has a model of its own", before is not None, has_own, *at)
    if before is None:
        return
    if before["threshold"] is None:
        log.compare("utility by a curve that it does not have", None, row["fitted_utility"], *at)
        return
    if settings.threshold == "local" and not settings.cost_per_mb:
        factor = (1 + settings.margin) * (1 + settings.inflation)
        trained = before["threshold"] / factor
        # A device that does not know its part in the model keeps its curve when it trains.
        fitted = len(told) == 1 or any(before[name] != told[-2][name] for name in _CURVE)
        if before["decision"] == "accept" and row["own_accuracy"] is not None and fitted:
            compare(log, "accuracy of its own model, by its last threshold", trained,
                    row["own_accuracy"], *at)  # fmt: skip


CHECKS = (
    Check(
        "what rational devices say",
        "They have valued every model that they got, were forced only in the first rounds, and "
        "decided by the accuracies that they have measured.",
        check_valuations,
    ),
)

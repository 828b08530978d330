"""Chooses how the weights of a run are derived again, and compares them with the ledger."""

from collections.abc import Callable, Sequence

from tests.oracles.formulas import FORMULAS, RoundContext, WeighedRound
from tests.oracles.propensities import LEARNING, LearnedPropensities, unlearnable
from tests.oracles.vector_formulas import VECTOR_FORMULAS

from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import CheckLog

Derive = Callable[[int, Sequence[Row]], WeighedRound]
"""Takes the number of a round and its folded updates, by client. Rounds come in their order."""


def weights_of(evidence: Evidence) -> Derive | str:
    """How the weights follow from the ledger; a sentence if they do not."""
    kind = evidence.rule["kind"]
    if clips(evidence):
        return "with server.privacy they follow from the norms of updates, which are not kept"
    if kind in VECTOR_FORMULAS and not evidence.server.get("keep_updates"):
        return f"those of {kind!r} follow from the updates, which are kept with server.keep_updates"
    if kind in VECTOR_FORMULAS:
        return f"those of {kind!r} follow from the kept updates and are checked with them"
    if kind in LEARNING:
        learned = LearnedPropensities(evidence, RoundContext.of(evidence))
        return unlearnable(evidence.rule) or learned.weigh
    if kind not in FORMULAS:
        return f"the weights of {kind!r} follow from more than the ledger has, or are its own"
    formula, context = FORMULAS[kind], RoundContext.of(evidence)
    return lambda round, folded: formula(context, folded)


def clips(evidence: Evidence) -> bool:
    """Whether the server clips updates, so that weights depend on their norms."""
    privacy = evidence.server.get("privacy") or {}
    return bool(privacy) and privacy.get("where", "server") == "server"


def compare_weights(derived: WeighedRound, folded: Sequence[Row], row: Row, log: CheckLog) -> None:
    """Compare the weights and the normaliser of a round, whose row of `rounds` is `row`."""
    round, tolerance = row["round"], derived.tolerance
    for update, weight in zip(folded, derived.weights, strict=True):
        found = update["weight"], tolerance, round, update["client"]
        log.compare_numbers("weight", weight, *found)
    log.compare_numbers("normaliser", derived.normaliser, row["normaliser"], tolerance, round)

"""Writes a plan as text and as CSV."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from muster.common.overlap import overlap
from muster.common.secure.graph import LEAST, sharing_of, too_few_stay
from muster.common.secure.steps import bytes_besides
from muster.emulator.planning.result import GroupPlan, Plan, left_out_text
from muster.emulator.records.energy import joules_text
from muster.emulator.records.summary import percent_text, seconds_text
from muster.emulator.report.plan_faults import fault_lines, missed_lines, occurrence_lines

if TYPE_CHECKING:
    from muster.common.seeds import FloatArray, IntArray

_QUANTILES = ("min", "p05", "median", "max", "effective_share")
_REASONS = 4


def totals_of(plan: Plan) -> dict[str, Any]:
    """What `muster plan --json` prints; docs/commands.md explains every key."""
    versions = None if plan.versions is None else int(plan.versions[-1])
    return {
        "name": plan.scenario.name,
        "exact": plan.exact,
        "rounds": plan.rounds,
        "versions": versions,
        "groups": [_totals(group) for group in plan.groups],
        "warnings": [line.removeprefix("warning: ") for line in warnings(plan)],
    }


def _totals(group: GroupPlan) -> dict[str, Any]:
    """The sums of a group over all rounds."""
    reasons = {reason.value: float(calls.sum()) for reason, calls in group.reasons.items()}
    sums: dict[str, FloatArray | IntArray] = {
        "available": group.available,
        "called": group.called,
        "accepted": group.accepted,
        "delivered": group.delivered,
        "in_time": group.in_time,
        "late": group.late,
    }
    if group.counting is not None:
        sums |= {"stale": group.counting.stale, "too_stale": group.counting.too_stale}
    return {
        "group": group.name,
        "devices": group.devices,
        "enrolled": group.enrolled,
        **{name: float(by_round.sum()) for name, by_round in sums.items()},
        **({} if group.joules is None else {"joules": float(group.joules.sum())}),
        "reasons": {reason: calls for reason, calls in reasons.items() if calls},
    }


def describe(plan: Plan) -> str:
    """The plan as text: groups, reasons of lost calls, propensities and overlap, warnings."""
    rounds, last_s = plan.rounds, float(plan.times_s[-1])
    last_s = last_s if plan.end_s is None else plan.end_s
    how = "exactly what a run does" if plan.exact else "as if every round lasted its deadline"
    over = f"{rounds:,} rounds over {seconds_text(last_s)} of scenario time"
    groups = [_HEAD, *map(_row, plan.groups)]
    if plan.versions is not None:
        over, groups = _pace(plan), [_COUNTING_HEAD, *map(_counting_row, plan.groups)]
    lines = [
        f"{plan.scenario.name}: {over}, {how}",
        "",
        *_table(groups),
        *_energy(plan),
        *_secure_sums(plan),
        "",
        *_reasons(plan),
        "",
        *_overlap(plan),
    ]
    if plan.timeline:
        lines += ["", "Faults", *_table(list(fault_lines(plan)))]
        lines += [*_indented(occurrence_lines(plan)), *_indented(missed_lines(plan))]
    if warned := list(warnings(plan)):
        lines += ["", *warned]
    return "\n".join(lines)


def _energy(plan: Plan) -> list[str]:
    """The energy of the calls of each group."""
    known = {g.name: float(g.joules.sum()) for g in plan.groups if g.joules is not None}
    if not known:
        return []
    rows = [(name, joules_text(joules)) for name, joules in known.items()]
    return ["", "Energy of the calls that devices accept", *_table(rows)]


def _secure_sums(plan: Plan) -> list[str]:
    """How devices share their secrets in the smallest and in the largest sum."""
    settings, format = plan.scenario.server.secure, plan.scenario.sum_format(0)
    if settings is None or format is None:
        return []
    in_sums = plan.devices_of_sums()
    rows: list[tuple[str, ...]] = [
        ("devices", "neighbours", "threshold", "bytes up", "too few stay")
    ]
    for devices in sorted({int(np.min(in_sums)), int(np.max(in_sums))}):
        if devices < LEAST:
            rows.append((str(devices), *"---", "always"))
            continue
        sharing = sharing_of(devices, settings.drop_out, settings.collusion)
        fails = too_few_stay(devices, sharing, settings.drop_out)
        counts = devices, sharing.neighbours, sharing.threshold, bytes_besides(sharing.neighbours)
        rows.append((*(f"{count:,}" for count in counts), f"{fails:.2g}"))
    title = (
        f"Secure sums: what each device sends besides {format.entry_bytes} bytes for each "
        f"parameter, and the chance that too few stay if each drops out with probability "
        f"{settings.drop_out:g}"
    )
    return ["", title, *_table(rows), *_noise_of_sums(plan, int(np.max(in_sums)))]


def _noise_of_sums(plan: Plan, all_of_them: int) -> list[str]:
    """How much noise a secure sum has at least, and how much if nobody drops out or colludes."""
    server = plan.scenario.server
    if server.secure is None or server.privacy is None or not server.privacy.place.in_sums:
        return []
    most = server.round_sizes(plan.scenario.devices)[1]
    certain = server.secure.noisy_devices(most, server.minimum)
    more = math.sqrt(max(all_of_them, certain) / certain)
    text = (
        f"Noise of a sum: standard deviation {server.privacy.deviation:.4g} from the {certain:,} "
        f"devices whose noise is certain, {more:.2f} times as much from the {all_of_them:,} of the "
        f"largest round"
    )
    return _indented([text])


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


_HEAD = ("group", "devices", "enrolled", "available", "called", "accept", "deliver",
         "cohort", "least", "most")  # fmt: skip


_COUNTING_HEAD = ("group", "devices", "enrolled", "available", "calls", "accept", "in time",
                  "stale", "too stale", "late", "open", "staleness", "largest")  # fmt: skip


def _counting_row(group: GroupPlan) -> tuple[str, ...]:
    """What becomes of the calls of a group, as shares of them, and the staleness of its updates."""
    counting, enrolled = group.counting, max(1, group.enrolled)
    assert counting is not None
    called, folded = max(1.0, float(group.called.sum())), int(counting.folded.sum())
    sums = [
        float(np.sum(values))
        for values in (
            group.accepted, group.in_time, counting.stale, counting.too_stale, group.late,
            counting.open,
        )
    ]  # fmt: skip
    return (
        group.name,
        f"{group.devices:,}",
        f"{group.enrolled:,}",
        percent_text(float(group.available.mean()) / enrolled),
        f"{group.called.sum():,.0f}",
        *(percent_text(total / called) for total in sums),
        f"{counting.staleness.sum() / folded:.2f}" if folded else "-",
        f"{counting.largest.max()}" if folded else "-",
    )


def _pace(plan: Plan) -> str:
    """How many versions the run makes, and in which time."""
    assert plan.versions is not None
    assert plan.end_s is not None
    versions, hours = int(plan.versions[-1]), plan.end_s / 3600
    made = f"{versions:,} versions in {plan.rounds:,} rounds and {seconds_text(plan.end_s)}"
    pace = f" ({versions / hours:,.1f} versions per hour)" if hours else ""
    return f"{made} of scenario time{pace}"


def _row(group: GroupPlan) -> tuple[str, ...]:
    rounds, enrolled = len(group.called), max(1, group.enrolled)
    called = max(1.0, float(group.called.sum()))
    return (
        group.name,
        f"{group.devices:,}",
        f"{group.enrolled:,}",
        percent_text(float(group.available.mean()) / enrolled),
        percent_text(float(group.called.sum()) / (enrolled * rounds)),
        percent_text(float(group.accepted.sum()) / called),
        percent_text(float(group.in_time.sum()) / called),
        f"{group.in_time.mean():.1f}",
        f"{group.in_time.min():.0f}",
        f"{group.in_time.max():.0f}",
    )


def _reasons(plan: Plan) -> Iterator[str]:
    yield "Calls that lead to nothing, by their most frequent reasons"
    rows = []
    for group in plan.groups:
        called = max(1.0, float(group.called.sum()))
        counts = {reason.value: by_round for reason, by_round in group.reasons.items()}
        counts["late"] = group.late
        if group.counting is not None:
            counts["too stale"] = group.counting.too_stale.astype(np.float64)
        shares = {reason: float(by_round.sum()) / called for reason, by_round in counts.items()}
        often = sorted((s for s in shares.items() if s[1] > 0), key=lambda s: -s[1])[:_REASONS]
        shown = ", ".join(f"{reason} {percent_text(share)}" for reason, share in often)
        rows.append((group.name, shown or "none"))
    yield from _table(rows)


def _overlap(plan: Plan) -> Iterator[str]:
    """Quantiles of the true propensities, and the effective share of a sample weighed by 1/p."""
    yield "True propensities; the last column is the effective share of a sample weighed by 1/p"
    enrolled = np.array([resident.enrolled for resident in plan.residents])
    enrollment = [resident.propensity for resident in plan.residents]
    yield from _table(
        [
            ("", "least", "5 %", "median", "most", "effective"),
            ("enrollment", *_quantiles(overlap(enrollment, enrolled))),
            *(
                (f"participation of {group.name}", *_quantiles(overlap(group.chance)))
                for group in plan.groups
                if len(group.chance)
            ),
        ]
    )


def _quantiles(found: dict[str, float]) -> tuple[str, ...]:
    *quantiles, effective = (found[name] for name in _QUANTILES)
    return (*(f"{value:.3g}" for value in quantiles), percent_text(effective))


def warnings(plan: Plan) -> Iterator[str]:
    """Problems that a user should know of before running the scenario."""
    if plan.left_out:
        yield f"warning: {left_out_text(plan.left_out, len(plan.residents))}"
    if plan.without_examples:
        yield (
            f"warning: {plan.without_examples:,} of {len(plan.residents):,} devices have no "
            f"examples, and are not called"
        )
    for group in plan.groups:
        if not group.enrolled:
            yield f"warning: no device of {group.name} is enrolled"
        elif never := plan.never(group):
            shown = ", ".join(never[:3]) + (" …" if len(never) > 3 else "")
            who = f"{len(never):,} of {group.enrolled:,} enrolled {group.name} ({shown})"
            often = group.usual_reason(set(never))
            why = f". Their most frequent reason: {often.value}" if often else ""
            yield (
                f"warning: {who} can practically never take part: less than once in "
                f"{plan.rounds:,} rounds{why}"
            )
    yield from _unforeseen(plan)
    yield from _empty_rounds(plan)
    if late := int(sum(group.late.sum() for group in plan.groups)):
        yield f"warning: {late:,} updates would come after the deadline"


def _unforeseen(plan: Plan) -> Iterator[str]:
    """A warning of each group whose devices decide by the model, which a plan does not have."""
    for group in plan.scenario.groups:
        if group.participation.rational:
            yield (
                f"warning: devices of {group.name} are rational, and leave if the model does not "
                f"serve them; a plan trains no model, and counts them as taking part whenever they "
                f"are available, eligible and willing"
            )


def _empty_rounds(plan: Plan) -> Iterator[str]:
    """A warning of rounds without a version, unless every finish ends a round."""
    if plan.versions is not None:
        if plan.scenario.server.mode.completion(None, None).each:
            return
        if empty := plan.rounds - int(plan.versions[-1]):
            yield (
                f"warning: {empty:,} of {plan.rounds:,} rounds make no version, because too few "
                f"updates can count in them"
            )
        return
    in_time, minimum = sum(group.in_time for group in plan.groups), plan.scenario.server.minimum
    if empty := int(np.count_nonzero(in_time < minimum)):
        yield f"warning: {empty:,} of {plan.rounds:,} rounds have fewer than {minimum} updates"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            f"{cell:<{width}}" if place == 0 or len(rows[0]) == 2 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

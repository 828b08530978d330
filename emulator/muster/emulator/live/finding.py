"""What holds the rounds up, in a few sentences: the upper part of the page says it.

A sentence that gives a duration takes the name and the number from the same `HoldUp`. A fault that
acts now is named before anything else, because it may be the reason for all that follows.
"""

from collections import Counter
from dataclasses import dataclass

from muster.emulator.following.run_progress import FaultProgress
from muster.emulator.live.fleet_state import ARRIVED, UNCOUNTED, FleetState, LinkTraffic
from muster.emulator.live.round_digest import HoldUp, hold_ups
from muster.emulator.records.secure_sums import steps_text
from muster.emulator.records.summary import clean, seconds_text

_OFTEN = 0.6
"""A group holds the rounds up if it was the slowest in this share of them,"""

_CLEARLY = 0.1
"""and by at least this share of its time."""

_MOST_FAULTS, _NEWEST_SAMPLES = 3, 20
_PARTS = {
    "train_s": "training",
    "transfer_s": "transfer",
    "wait_s": "waiting for a turn to transfer",
}


@dataclass(frozen=True)
class Headline:
    """The sentences of the page's upper part.

    Attributes:
        holding: whether something holds the rounds up.
    """

    text: str
    more: str
    holding: bool


def finding(state: FleetState, run_state: str) -> Headline:
    """What holds the rounds of a run up, and for whom its open round waits.

    Args:
        run_state: how the run stands; of a run that has ended, its status.
    """
    running = run_state == "running"
    acting = [each for each in state.progress.faults.values() if each.acting]
    first, details, holding = _hold_up(state, running, _struck(state, acting))
    sentences = [
        first,
        *details,
        _open_round(state) if running else "",
        _secure_sum(state) if running else "",
        _sentence(state.progress.failed_training),
        _sentence(state.progress.worse),
    ]
    if acting:
        sentences.insert(0, _acting(state, acting))
    text, *more = filter(None, sentences)
    return Headline(text, " ".join(more), holding or bool(acting))


def _struck(state: FleetState, acting: list[FaultProgress]) -> set[str]:
    """The groups on which a fault acts."""
    struck = {state.group_of.get(target) for fault in acting for target in fault.targets}
    return {group for group in struck if group is not None}


def _acting(state: FleetState, acting: list[FaultProgress]) -> str:
    named = [
        f"{each.fault} ({each.do}) on {_targets(state, each)}" if each.do else
        f"{each.fault} on {_targets(state, each)}"
        for each in acting[:_MOST_FAULTS]
    ]  # fmt: skip
    if len(acting) > _MOST_FAULTS:
        named.append(f"{len(acting) - _MOST_FAULTS} more")
    verb = "A fault acts" if len(acting) == 1 else f"{len(acting)} faults act"
    return f"{verb}: {'; '.join(named)}."


def _targets(state: FleetState, fault: FaultProgress) -> str:
    """For example "2 devices of far, and the server"."""
    groups = Counter(state.group_of[each] for each in fault.targets if each in state.group_of)
    devices = [f"{_plural(count, 'device')} of {clean(group)}" for group, count in groups.items()]
    others = [
        "the server" if each == "server" else clean(each)
        for each in fault.targets
        if each not in state.group_of
    ]
    return ", ".join([*devices, *others]) or "no device"


def _hold_up(state: FleetState, running: bool, struck: set[str]) -> tuple[str, list[str], bool]:
    """A sentence, more of them, and whether a group holds the rounds up."""
    holders = hold_ups(state.digests)
    if not holders:
        return "No update has arrived yet.", [], False
    if len(state.setup.groups) == 1:
        return "There is one group, so no group waits for another.", [], False
    holder = holders[0]
    if holder.last < _OFTEN * holder.of or holder.lead_s <= _CLEARLY * holder.after_s:
        text = f"No group {'holds' if running else 'held'} the rounds up."
        return text, [_no_holder(state, holder, running)], False
    text = f"The rounds {'wait' if running else 'waited'} for {clean(holder.group)}."
    if state.setup.lockstep:
        return text, _modelled(holder, state.setup.deadline_s), True
    # What a fault does to a group is not blamed on its link.
    why = "" if holder.group in struck else _reason(holder, state.link_of(holder.group))
    came = f"Its last update came {seconds_text(holder.lead_s)} after those of all other groups"
    return text, [f"{came}, {_often(holder)}.", why], True


def _no_holder(state: FleetState, holder: HoldUp, running: bool) -> str:
    if state.setup.lockstep and holder.after_s == 0:
        return "No device needs modelled time."
    group, lead = clean(holder.group), seconds_text(holder.lead_s)
    if state.setup.lockstep:
        return f"{group} worked longest {_often(holder)}, {lead} of modelled time more than others."
    return f"{group} {'is' if running else 'was'} last {_often(holder)}, {lead} after the others."


def _modelled(holder: HoldUp, limit_s: float | None) -> list[str]:
    after, lead = seconds_text(holder.after_s), seconds_text(holder.lead_s)
    work = (
        f"In the median round, its slowest device needed {after} of modelled time for training and "
        f"transfers, {lead} more than those of all other groups, {_often(holder)}."
    )
    if limit_s is None or limit_s >= holder.after_s:
        return [work]
    return [work, f"The deadline is {seconds_text(limit_s)}."]


def _reason(holder: HoldUp, link: LinkTraffic | None) -> str:
    part = max(_PARTS, key=lambda each: float(getattr(holder, each)))
    share = float(getattr(holder, part)) / holder.after_s
    if share < 0.3:
        return (
            "Most of this time is neither training nor transfer: programs start, stand still, or "
            "wait for the processor."
        )
    full = _fullness(link) if link is not None and part != "train_s" else ""
    return f"{_whole(share)} of its time is {_PARTS[part]}{full}."


def _fullness(link: LinkTraffic) -> str:
    newest = list(link.samples)[-_NEWEST_SAMPLES:]
    if not newest:
        return ""
    caps = {"upwards": link.cap_up_bps, "downwards": link.cap_down_bps}
    most = {"upwards": max(up for _, up, _ in newest), "downwards": max(d for _, _, d in newest)}
    full, way = max((most[way] / cap if cap else 0.0, way) for way, cap in caps.items())
    return f", over a shared link that is up to {_whole(full)} full {way}" if full > 0.5 else ""


def _open_round(state: FleetState) -> str:
    open = state.open
    if open is None or state.progress.status is not None:
        return ""
    said = list(open.states.values())
    arrived = said.count(ARRIVED)
    silent = open.called - arrived - open.declined - said.count(UNCOUNTED)
    if silent <= 0:
        return ""
    working = state.working_by_group()
    at_work = ", ".join(f"{n} of {clean(name)}" for name, n in working.items() if n)
    return (
        f"Round {open.number} is open: {arrived:,} of {open.called:,} updates have arrived, and "
        f"the answers of {_plural(silent, 'device')} are missing"
        f"{f' (at work: {at_work})' if at_work else ''}."
    )


def _secure_sum(state: FleetState) -> str:
    steps = steps_text(state.progress.secure)
    return f"Its secure sum is under way: {steps}." if steps else ""


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:].rstrip('.')}." if said else ""


def _often(holder: HoldUp) -> str:
    if holder.of == 1:
        return "in the only round so far"
    return f"in {holder.last} of the newest {_plural(holder.of, 'round')}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _whole(share: float) -> str:
    return f"{round(100 * min(1.0, share))} %"

"""Who can be called: what the answers of a device say about the rounds after them."""

from collections.abc import Iterable, Sequence

from muster.common.exchange import Answer, Decision, Observation, Reason
from muster.server.fleet.devices import EnrolledDevice
from muster.server.rounds.modes.contract import Mode
from muster.server.rounds.round import Round
from muster.server.rounds.selection import Candidate, Draws, Selection


def choose(
    round: Round,
    devices: Sequence[EnrolledDevice],
    mode: Mode,
    selection: Selection,
    draws: Draws,
) -> list[str]:
    """Choose the devices that a round calls.

    Args:
        devices: the devices that can be reached, in the order of the population.
        draws: makes the random stream of the round.
    """
    candidates = candidates_of(round, devices)
    chosen = mode.wanted(candidates, _open(round, devices), selection, draws)
    round.untried = 0 < len(chosen) < len(candidates)
    return chosen


def _open(round: Round, devices: Iterable[EnrolledDevice]) -> int:
    """The number of assignments that earlier rounds left open; without those whose work has
    finished, if rounds end at each finish."""
    rules, cohort = round.rules, round.cohort
    if not rules.each:
        return len(cohort)
    if not rules.lockstep:
        return sum(member.accepted is None for member in cohort.values())
    # A restarted server calls before the updates have come again, so these say nothing yet.
    opened_s = round.scenario_s or 0.0
    return sum(each.client in cohort and each.busy_until_s > opened_s for each in devices)


def candidates_of(round: Round, devices: Iterable[EnrolledDevice]) -> list[Candidate]:
    """The devices that a round could call."""
    if round.rules.outlives_round:
        devices = [device for device in devices if _is_free(device, round)]
    return [Candidate(device.client, device.examples) for device in devices]


def _is_free(device: EnrolledDevice, round: Round) -> bool:
    """Whether a device has no work from an earlier round, and has not been asked at this step of
    its life."""
    busy = device.client in round.cohort or device.busy_until_s > (round.scenario_s or 0.0)
    return not busy and device.away_until < round.step


def note_answer(device: EnrolledDevice, answer: Answer, round: Round) -> None:
    """Note until when a device is away or busy, from its answer to a call of the round's cohort."""
    rules = round.rules
    if answer.decision is Decision.DECLINE:
        if rules.outlives_round or (rules.lockstep and answer.reason is Reason.OFFLINE):
            device.away_until = round.step + answer.away_steps
            foreseen = dict(enumerate(answer.foreseen, start=round.step + 1))
            if rules.idle_s is not None:  # the next round may open at the same step
                client = answer.key.client
                foreseen[round.step] = Observation(client, answer.state, answer.x)
            device.foreseen = foreseen
    elif rules.lockstep and rules.outlives_round:
        device.busy_until_s = round.cohort[device.client].begun_s + answer.modelled_s

"""A round as a strategy sees it: the devices that it wants, and the replies that it gets."""

from collections.abc import Sequence

import numpy as np

from muster.common.exchange import Decision, Outcome
from muster.server.rounds.round import Round
from muster.server.strategy.pipe import Push
from muster.server.updates.round_updates import PendingUpdate
from muster.tasks.replies import DeviceReply


def instructions_of(push: Push, clients: Sequence[str]) -> dict[str, bytes]:
    """What a strategy tells the devices that it wants in a round, by client.

    Args:
        clients: of the population, in its order.
    """
    return {clients[index]: told for index, told in sorted(push.instructions.items())}


def replies_of(
    push: Push,
    clients: Sequence[str],
    round: Round,
    counted: Sequence[PendingUpdate],
    parameters: int,
) -> dict[int, DeviceReply]:
    """The replies to a push, by the index of the device, in the order of the indices.

    Args:
        clients: of the population, in its order.
        round: which no longer collects.
        counted: the updates that count in it; their bodies must still be open.
        parameters: length of an update.
    """
    updates = {update.contribution.client: update for update in counted}
    replies = {}
    for index in sorted(push.instructions):
        if (update := updates.get(clients[index])) is None:
            replies[index] = DeviceReply(absence=_why_absent(clients[index], round))
        else:
            delta = np.array(update.body.read(0, parameters), np.float32)
            replies[index] = DeviceReply(delta, update.update.examples, update.update.report)
    return replies


def _why_absent(client: str, round: Round) -> str:
    """Why a device that a strategy wants has no update that counts."""
    member = round.cohort.get(client)
    if member is None:
        return "not connected"
    if member.accepted is not None:
        return "deadline" if client in round.slow() else "goal reached"
    if member.late is not None:
        return "deadline"
    answer = member.answer
    if answer is not None and answer.decision is not Decision.ACCEPT:
        return f"{answer.decision}: {answer.reason}"
    refused = [
        receipt.reason
        for key, (_, receipt) in round.receipts.items()
        if key.client == client and receipt.outcome is Outcome.REFUSED
    ]
    if refused:
        return f"refused: {refused[-1]}"
    return "no answer" if answer is None else "no update"

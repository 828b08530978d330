"""Assignments that outlive the round of their call: what a restarted server takes over from the
ledger."""

from muster.server.account.ledger import Ledger
from muster.server.coordination.scenario_time import ScenarioTime
from muster.server.coordination.shared_links import SharedLinks
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.cohort import CohortMember
from muster.server.rounds.round import Round


def restore(
    round: Round,
    ledger: Ledger,
    time: ScenarioTime,
    fleet: Fleet,
    links: SharedLinks,
    lockstep: bool,
) -> None:
    """Let a round take over the assignments that the ledger has as open. In lockstep, also restore
    what is known of devices that are not called again."""
    members = {}
    # The order in which the server that made them had called them, so that everything that is in
    # the order of the cohort is the same after a restart.
    places = {client: device.index for client, device in fleet.devices.items()}
    for row in sorted(ledger.open_assignments(), key=lambda r: (r.round, places[r.client])):
        step = time.step_at(row.begun_s)
        member = CohortMember(row.round, row.base_version, row.begun_s or 0.0, step)
        member.model_bytes = member.entered_bytes = row.bytes_down
        member.entered = True
        members[row.client] = member
    round.take_over(members)
    if not lockstep:
        return
    links.load(ledger.shared_work(), time.next_s)
    for client, until_s in ledger.busy_until_s():
        fleet.devices[client].busy_until_s = until_s
    for client, declined_s, away_steps in ledger.declined():
        fleet.devices[client].away_until = time.step_at(declined_s) + away_steps

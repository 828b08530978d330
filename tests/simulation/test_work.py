"""The work of a round does not grow unnoticed, and what a fleet does not use costs it none."""

from collections.abc import Mapping

import pytest
from tests.simulation.work import FLEETS, FUNCTIONS, TOTALS, Work, recorded, work_of

from muster.common.exchange import Receipt, Update
from muster.server.rounds.round import Round

_TOLERANCE = 0.03

UNUSED_BY_TEN = {
    "availability": ("client/availability/", "client/life/"),
    "faults of devices": ("client/faults/",),
    "masks and slices": ("common/masks/",),
    "partial sums": ("common/partial_sums", "client/calls/partial_sums"),
    "privacy": ("server/aggregation/accountant",),
    "a strategy of Flower": ("server/strategy/", "server/aggregation/strategy_rounds"),
    "metrics for Prometheus": ("server/metrics/",),
    "evaluation on devices": ("server/evaluation/on_devices", "server/evaluation/breakdown"),
    "links": ("common/rates/", "common/fluid", "server/coordination/shared_flows"),
    "recorded lives": ("server/rounds/arrivals", "common/life_record"),
    "selection-aware rules": ("server/knowledge/", "common/claims"),
    "uploads in chunks": ("server/rpc/transfers",),
}
"""The files of what the fleet "ten" does not use, by feature: folders, or beginnings of names."""


def differences(before: Work, now: Work) -> list[str]:
    """Return what differs by more than the tolerance: a sentence for each total, and what of the
    functions grew."""
    found = [
        f"{total}: {now[total]:g} a round, {before[total]:g} are on record"
        for total in TOTALS
        if abs(now[total] - before[total]) > _TOLERANCE * before[total]
    ]
    grown = {each: now[each] - before.get(each, 0) for each in now if each not in TOTALS}
    if found and now[FUNCTIONS] > before[FUNCTIONS]:
        most = sorted(grown, key=lambda each: -grown[each])[:12]
        found += [f"{each}: {before.get(each, 0):g}, now {now[each]:g}" for each in most]
    return found


@pytest.mark.parametrize("name", FLEETS)
def test_the_work_of_a_round_is_the_recorded_one(name: str) -> None:
    found = differences(recorded()[name], work_of(name))
    assert not found, (
        "\n".join(found) + "\nIf it cannot be less, or it has become less: make work, and commit it"
    )


def test_one_more_call_for_every_update_is_noticed_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit = Round.admit

    def more(self: Round, update: Update) -> Receipt:
        assert all(self.expects(update.key.client) for _ in range(12))
        return admit(self, update)

    monkeypatch.setattr(Round, "admit", more)
    found = differences(recorded()["ten"], work_of("ten"))
    assert found[0].startswith(FUNCTIONS)
    assert found[1].startswith("server/rounds/round.py Round.expects: ")


def test_a_total_that_falls_is_to_be_recorded() -> None:
    before: Mapping[str, float] = dict.fromkeys(TOTALS, 100.0)
    assert differences(before, {**before, FUNCTIONS: 98}) == []
    assert len(differences(before, {**before, FUNCTIONS: 96})) == 1


@pytest.mark.parametrize("feature", UNUSED_BY_TEN)
def test_what_a_fleet_does_not_use_costs_no_call(feature: str) -> None:
    files = UNUSED_BY_TEN[feature]
    called = [each for each, times in recorded()["ten"].items() if times and each.startswith(files)]
    assert called == []

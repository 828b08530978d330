"""What simulations find in the frames of devices that break the promises of secure sums."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.common.exchange import Key, SumHeader
from muster.common.secure.steps import StepRequest, SumStep
from muster.simulation.revealed import RevealedShares

RECORDS = {SumStep.UPDATE: bytes(82), SumStep.OPENING: b"\1"}


def message(number: int, step: SumStep, weight: float, others: list[int]) -> Any:
    records = [(index, RECORDS[step]) for index in others]
    request = StepRequest(step, bytes([number]) * 16, 0, 2, records)
    call = SimpleNamespace(key=Key("d0", 4, 1), model_checksum=b"m")
    wanted = SimpleNamespace(number=number, step=request.encoded(), weights=(weight,))
    return SimpleNamespace(sum_request=wanted, calls=[call])


@pytest.mark.parametrize(
    ("step", "again", "found"),
    [
        (SumStep.UPDATE, (2.0, [1, 2]), []),
        (SumStep.UPDATE, (2.0, [1]), []),  # neighbours who have dropped out
        (SumStep.UPDATE, (3.0, [1, 2]), ["d0 padded two updates in round 4"]),
        (SumStep.OPENING, (2.0, [1, 2]), []),
        (SumStep.OPENING, (2.0, [1]), ["d0 helped to open two sums of round 4"]),
    ],
    ids=str,
)
def test_a_device_that_answers_about_two_sums_of_a_round_is_found(
    step: SumStep, again: tuple[float, list[int]], found: list[str]
) -> None:
    shares = RevealedShares()
    for number, (weight, others) in enumerate([(2.0, [1, 2]), again]):
        shares.asked("d0", message(number, step, weight, others))
        shares.replied("d0", SumHeader(number, 33, b"", ()))
    assert list(shares.violations()) == found


def test_a_step_that_a_device_refuses_reveals_nothing() -> None:
    shares = RevealedShares()
    for number, weight in enumerate([2.0, 3.0]):
        shares.asked("d0", message(number, SumStep.UPDATE, weight, [1, 2]))
        shares.replied("d0", SumHeader(number, 33 * (1 - number), b"", ["d0"] * number))
    assert not list(shares.violations())

"""The format of an update belongs to its device and to the round of its call."""

import numpy as np
import pytest

from muster.common.compression import Whole
from muster.common.exchange import Fingerprint, Identity, Key, Outcome, Reason, Update
from muster.common.masks import MASKINGS, GroupMasks, Layout, Mask
from muster.common.tensors import schema_of
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.updates.admission import Admission
from muster.server.updates.formats import UpdateFormats

LAYOUT = Layout(schema_of({"a": (5,), "b": (3,), "c": (2,), "d": (10,)}))


@pytest.fixture
def fleet() -> Fleet:
    places = {"a": "whole", "b": "part", "c": "part"}
    return Fleet(
        EnrolledDevice(client, group, place, 5)
        for place, (client, group) in enumerate(places.items())
    )


@pytest.fixture
def formats(fleet: Fleet) -> UpdateFormats:
    masking = MASKINGS.parse({"kind": "tensors", "schedule": "rotating"})
    masks = GroupMasks(masking, LAYOUT, 0.5, 1)  # type: ignore[arg-type]
    return UpdateFormats({}, {"part": masks}, 20, None, fleet)


def test_the_length_follows_the_mask_of_the_round(formats: UpdateFormats) -> None:
    # Windows of 10 coordinates: [a b c], [d], [a b c], …; b is at place 1, c at place 2.
    assert [formats.of(Key("b", round, 1)).length for round in (1, 2, 3)] == [40, 40, 40]
    masks = [formats.mask_of(Key("b", round, 1)) for round in (1, 2)]
    assert [mask.before(10) for mask in masks if mask] == [0, 10]
    assert formats.of(Key("a", 1, 1)).length == 80
    assert formats.mask_of(Key("a", 1, 1)) is None
    assert formats.sizes == {"whole": (80, 80), "part": (80, 40)}
    assert formats.mask_ratio(Key("a", 4, 1)) == 1
    assert formats.mask_ratio(Key("c", 4, 1)) == 0.5
    assert formats.masked
    assert not UpdateFormats({}, {}, 20, None, Fleet([])).masked


def test_a_body_of_another_length_is_refused(formats: UpdateFormats, fleet: Fleet) -> None:
    pack = fleet.enroll([Identity("b", 5)], Fingerprint("test", "test", "cpu", 1))
    admission = Admission(formats, fleet)
    round = Round(1, 0, Rules(lockstep=True))
    round.select(["a", "b"])
    round.call("b")
    admission.open(round)
    right = Update(Key("b", 1, 1), 5, bytes(16), 40, 0.0, 0.0, 0.0)
    assert admission.known_receipt(pack, right) is None
    whole = admission.known_receipt(pack, right._replace(length=80))
    assert whole is not None
    assert (whole.outcome, whole.reason) == (Outcome.REFUSED, Reason.LENGTH)
    assert "40 bytes: 10 parameters" in whole.detail


class Unmade(Exception):
    """A mask was made for a round that does not exist."""


def test_no_mask_is_made_for_a_round_that_was_not_opened(
    formats: UpdateFormats, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = fleet.enroll([Identity("b", 5)], Fingerprint("test", "test", "cpu", 1))
    admission = Admission(formats, fleet)
    round = Round(1, 0, Rules(lockstep=True))
    round.select(["b"])
    round.call("b")
    admission.open(round)

    def made(*given: object) -> Mask:
        raise Unmade

    monkeypatch.setattr(GroupMasks, "of", made)
    for number in (0, 2, 2**60):
        update = Update(Key("b", number, 1), 5, bytes(16), 40, 0.0, 0.0, 0.0)
        receipt = admission.known_receipt(pack, update)
        assert receipt is not None
        assert receipt.outcome in (Outcome.REFUSED, Outcome.LATE)
    with pytest.raises(Unmade):
        admission.known_receipt(pack, Update(Key("b", 1, 1), 5, bytes(16), 40, 0.0, 0.0, 0.0))


def test_entries_outside_the_mask_are_read_as_zero(formats: UpdateFormats) -> None:
    format = formats.of(Key("b", 1, 1))
    body = np.arange(1, 11, dtype="<f4").tobytes()
    assert isinstance(format.codec, Whole)

    def pread(length: int, offset: int) -> bytes:
        return body[offset : offset + length]

    start = 0 if format.mask is not None and format.mask.before(10) else 10
    read = np.concatenate([format.read(pread, 0, 7), format.read(pread, 7, 20)])
    assert read.tolist() == [
        float(n - start + 1) if start <= n < start + 10 else 0.0 for n in range(20)
    ]

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.device.memory import Memory, RoundRecord, State
from muster.common.exchange import Call, Key, Update
from muster.wire.bodies import checksum

BODY = bytes(range(100))


def model(round_: int) -> bytes:
    """Checksum of the base version of a round."""
    return bytes([round_]) * 16


def held(round_: int, body: bytes = BODY) -> RoundRecord:
    update = Update(Key("a", round_, 1), 5, checksum(body), len(body), 0.25, 0.5, 1.5)
    return RoundRecord(round_, model(round_), State(round_ - 1), State(round_), update, body)


def call(round_: int, attempt: int = 2, of: int | None = None) -> Call:
    return Call(Key("a", round_, attempt), round_ - 1, 0.0, model(of or round_))


def test_a_device_that_comes_back_remembers_its_two_newest_rounds(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    assert memory.held == ()
    memory.hold(held(1))
    assert Memory(tmp_path).held == (held(1),)
    for round_ in range(2, 6):
        memory.hold(held(round_))
        assert memory.held == Memory(tmp_path).held == (held(round_ - 1), held(round_))


def test_a_record_that_finds_no_room_can_be_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path)
    memory.hold(held(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    longer = held(2, bytes(4000))  # needs a larger file
    with monkeypatch.context() as patched:
        patched.setattr("muster.client.device.memory.write_atomic", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                memory.hold(longer)
    assert memory.held == Memory(tmp_path).held == (held(1),)
    memory.hold(longer)
    assert memory.held == Memory(tmp_path).held == (held(1), longer)


def test_it_remembers_the_steps_and_the_report(tmp_path: Path) -> None:
    record = held(1)
    assert record.update is not None
    stated = record._replace(update=record.update._replace(steps=2**40, report=b"a report"))
    Memory(tmp_path).hold(stated)
    assert Memory(tmp_path).held == (stated,)


@pytest.mark.parametrize("died", [False, True])
def test_it_resends_what_it_holds_under_the_new_call_and_nothing_else(
    tmp_path: Path, died: bool
) -> None:
    memory = Memory(tmp_path)
    for round_ in (2, 3):
        memory.hold(held(round_, bytes([round_]) * 9))
    memory = Memory(tmp_path) if died else memory
    for round_ in (2, 3):
        again = memory.update_for(call(round_))
        assert again is not None
        assert (again.body, again.update.key.attempt) == (bytes([round_]) * 9, 2)
    assert memory.update_for(call(4)) is None
    assert memory.update_for(call(3, of=2)) is None, "it was trained from another model"


def test_of_an_update_that_is_not_written_down_only_the_newest_stays(tmp_path: Path) -> None:
    memory = Memory(tmp_path, body_bytes=len(BODY) - 1)
    memory.hold(held(1))
    memory.hold(held(2))
    assert memory.update_for(call(1)) is None, "it is trained again"
    assert memory.update_for(call(2)) is not None
    assert Memory(tmp_path).update_for(call(2)) is None
    assert Memory(tmp_path).before(2) == State(1)


@pytest.mark.parametrize("died", [False, True])
def test_every_round_is_entered_from_the_state_before_it(tmp_path: Path, died: bool) -> None:
    memory = Memory(tmp_path)
    assert memory.before(1) == State(0)
    for round_ in (1, 2, 3):
        memory.hold(held(round_))
    memory = Memory(tmp_path) if died else memory
    assert memory.before(4) == memory.before(9) == State(3)
    assert memory.before(3) == State(2), "the server forgot the round: once more"
    assert memory.before(2) == State(1), "it forgot the one before too"
    # The update of round 2 was lost, and is trained again: round 3 is entered as before.
    memory.hold(held(2))
    assert memory.before(3) == State(2)
    assert memory.before(2) == State(1)
    memory.hold(held(3))
    assert memory.before(4) == State(3)


@pytest.mark.parametrize("died", [False, True])
def test_a_control_variate_is_that_after_the_newest_update_that_counted(
    tmp_path: Path, died: bool
) -> None:
    def enter(round_: int, counted: int, after: bytes) -> bytes:
        """Train for a call of a round; returns the control variate with which it was entered."""
        memory = Memory(tmp_path) if died else kept
        control = memory.counted_for(call(round_)._replace(counted_round=counted)).control
        before, then = State(round_ - 1, control=control), State(round_, control=after)
        memory.hold(held(round_)._replace(before=before, after=then))
        return control

    kept = Memory(tmp_path)
    assert enter(2, 0, b"two") == b""
    assert enter(4, 0, b"four") == b"", "the update of round 2 did not count"
    assert enter(5, 4, b"five") == b"four"
    assert enter(7, 4, b"seven") == b"four", "that of round 5 did not count"
    assert enter(8, 4, b"eight") == b"four", "nor did that of round 7"
    assert enter(9, 8, b"nine") == b"eight"
    assert enter(9, 8, b"nine") == b"eight", "the server called once more"
    assert enter(10, 9, b"ten") == b"nine"
    # The server forgot rounds 9 and 10, and calls for both again.
    assert enter(9, 8, b"nine") == b"eight"
    assert enter(10, 9, b"ten") == b"nine"
    assert enter(11, 10, b"") == b"ten"


@pytest.mark.parametrize("died", [False, True])
def test_a_device_that_gave_up_and_trained_when_called_again_goes_on_from_its_training(
    tmp_path: Path, died: bool
) -> None:
    # On clocks that run, a restarted server calls again, and the device may decide otherwise.
    memory = Memory(tmp_path)
    trained = State(1, residual=b"left", control=b"one", local=b"head")
    memory.hold(held(1)._replace(before=State(), after=State(), update=None, body=b""))
    memory.hold(held(1)._replace(before=State(), after=trained))
    memory = Memory(tmp_path) if died else memory
    assert memory.before(2) == trained
    assert memory.counted_for(call(2)._replace(counted_round=1)) == trained
    assert memory.before(1) == State()


@given(st.data())
def test_whatever_instant_kills_it_one_of_the_last_two_rounds_is_whole(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.bin"
        memory = Memory(Path(folder))
        for round_ in (1, 2, 3):
            memory.hold(held(round_))
        before = path.read_bytes()
        memory.hold(held(4))
        after = path.read_bytes()
        cut = data.draw(st.integers(0, len(after)))
        # The kill came after `cut` bytes of the file had their new value.
        path.write_bytes(after[:cut] + before[cut:])
        found = Memory(Path(folder)).held
        assert found in [(held(2), held(3)), (held(3),), (held(3), held(4))]


def test_longer_updates_find_room_and_leave_it_to_the_one_before(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for round_ in (1, 2, 3):
        memory.hold(held(round_, BODY * round_**2 * 5))
        assert Memory(tmp_path).held == memory.held
    assert [held.round for held in memory.held] == [2, 3]


def test_a_round_without_local_steps_has_no_loss_to_remember(tmp_path: Path) -> None:
    no_loss = held(1)
    assert no_loss.update is not None
    Memory(tmp_path).hold(no_loss._replace(update=no_loss.update._replace(loss=math.nan)))
    (found,) = Memory(tmp_path).held
    assert found.update is not None
    assert math.isnan(found.update.loss)


def test_states_are_remembered_to_the_bit(tmp_path: Path) -> None:
    before = State(6, b"", (0.1, 2.0), bytes(range(20, 28)))
    after = State(7, bytes(range(12)), (1 / 3, math.inf, -0.0), bytes(range(40, 48)))
    gave_up = RoundRecord(7, model(7), before, after)
    Memory(tmp_path).hold(gave_up)
    assert Memory(tmp_path).held == (gave_up,)


@pytest.mark.parametrize("left", [0, 5, 40, 300])
def test_a_file_that_lost_its_end_is_made_anew(tmp_path: Path, left: int) -> None:
    memory = Memory(tmp_path)
    for round_ in (1, 2):
        memory.hold(held(round_))
    path = tmp_path / "state.bin"
    path.write_bytes(path.read_bytes()[:left])
    memory = Memory(tmp_path)
    for round_ in (3, 4):
        memory.hold(held(round_))
    assert Memory(tmp_path).held == (held(3), held(4))


def test_a_damaged_body_is_lost_alone_and_the_states_stay(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for round in (1, 2):
        memory.hold(held(round))
    memory.close()
    path = tmp_path / "state.bin"
    data = bytearray(path.read_bytes())
    data[data.rindex(BODY)] ^= 1
    path.write_bytes(bytes(data))
    again = Memory(tmp_path)
    assert [(each.round, each.before, each.after) for each in again.held] == [
        (each.round, each.before, each.after) for each in map(held, (1, 2))
    ]
    assert sorted(again.update_for(call(round)) is None for round in (1, 2)) == [False, True]

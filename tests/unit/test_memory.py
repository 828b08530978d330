import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from muster.client.memory import Held, Memory, State
from muster.common.exchange import Commit, Key, Update
from muster.wire.bodies import checksum

BODY = bytes(range(100))


def held(round_: int, body: bytes = BODY) -> Held:
    update = Update(Key("a", round_, 1), 5, checksum(body), len(body), 0.25, 0.5, 1.5)
    return Held(round_, round_ - 1, State(round_ - 1), State(round_), update, body)


def test_a_device_that_comes_back_remembers_its_newest_round(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    assert memory.held is None
    for round_ in range(1, 6):
        memory.hold(held(round_))
        assert Memory(tmp_path).held == held(round_)


def test_it_resends_what_it_holds_under_the_new_call_and_nothing_else(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.hold(held(3))
    again = memory.update_for(Key("a", 3, 2), base_version=2)
    assert again is not None
    assert (again.body, again.update.key.attempt) == (BODY, 2)
    assert memory.update_for(Key("a", 4, 1), base_version=2) is None
    assert memory.update_for(Key("a", 3, 2), base_version=1) is None


def test_the_state_moves_on_only_when_the_round_is_committed(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    assert memory.before(1, Commit()) == State(0)
    memory.hold(held(1))
    assert memory.before(1, Commit(0, 0)) == State(0), "the server forgot the round: once more"
    assert memory.before(2, Commit(1, 1)) == State(1)


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
        assert found in (held(3), held(4))


def test_a_longer_update_finds_room(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.hold(held(1))
    memory.hold(held(2, BODY * 50))
    assert Memory(tmp_path).held == held(2, BODY * 50)


def test_a_round_without_local_steps_has_no_loss_to_remember(tmp_path: Path) -> None:
    no_loss = held(1)
    Memory(tmp_path).hold(no_loss._replace(update=no_loss.update._replace(loss=math.nan)))
    found = Memory(tmp_path).held
    assert found is not None
    assert math.isnan(found.update.loss)

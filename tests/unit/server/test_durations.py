"""What devices state of the durations of their work, and what the server takes for them."""

import logging

import numpy as np
import pytest

from muster.client.faults.offline import Offline
from muster.client.faults.scheduled import DeviceFault, Window
from muster.client.faults.slow import Slow
from muster.client.training.settings import GroupTraining, Training
from muster.common.body_sizes import BodySizes
from muster.common.errors import ConfigError
from muster.common.exchange import Answer, Decision, Key, Update
from muster.common.lines import LinkModel
from muster.common.seeds import normals
from muster.emulator.scenario.local_work import training_time
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.durations import WorkDurations
from muster.server.settings.population import TrainingTime

# 3 s down, 2 s up, and two round trips of 0.25 s: 5.5 s of transfers.
LINE = LinkModel(down_bps=8000, up_bps=8000, rtt_s=0.25)
SIZES = {"g": BodySizes(3000, 2000)}
TRANSFERS_S = 5.5


def durations(*training_s: float, lockstep: bool = True) -> WorkDurations:
    """The durations of a device `a` with these bounds of training, and of `b`, which has none."""
    least_s, most_s = training_s
    known = EnrolledDevice("a", "g", 0, 10, training_s=(least_s, most_s), line=LINE)
    return WorkDurations({"a": known, "b": EnrolledDevice("b", "g", 1, 10)}, SIZES, lockstep)


def update(modelled_s: float, client: str = "a") -> Update:
    return Update(Key(client, 1, 1), 10, bytes(16), 4, 0.0, 0.0, 0.5, modelled_s)


def answer(modelled_s: float, decision: Decision = Decision.ACCEPT, client: str = "a") -> Answer:
    own = update(modelled_s, client) if decision is Decision.ACCEPT else None
    return Answer(Key(client, 1, 1), decision, modelled_s, update=own)


@pytest.mark.parametrize(
    ("stated_s", "taken_s"),
    [(0.0, 8.5), (8.4, 8.5), (8.5, 8.5), (11.0, 11.0), (17.5, 17.5), (18.0, 17.5), (1e12, 17.5)],
)
def test_a_duration_is_one_that_the_work_can_have(stated_s: float, taken_s: float) -> None:
    """3 s of training, or 12 s under faults, and 5.5 s of transfers."""
    found = durations(3.0, 12.0)
    assert found.of_update(update(stated_s)).modelled_s == taken_s
    taken = found.of_answer(answer(stated_s))
    assert taken.update is not None
    assert (taken.modelled_s, taken.update.modelled_s) == (taken_s, taken_s)


def test_who_loses_its_work_silently_on_a_running_clock_is_not_accused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = durations(3.0, 3.0, lockstep=False)
    accepts = answer(2.0)._replace(update=None)
    assert found.of_answer(accepts).modelled_s == 2.0
    assert found.of_update(update(2.0)).modelled_s == 8.5
    assert len(caplog.records) == 1


@pytest.mark.parametrize("decision", [Decision.ABORT, Decision.DECLINE])
def test_who_gives_up_has_done_a_share_of_the_work(decision: Decision) -> None:
    found = durations(3.0, 3.0)
    for stated_s, taken_s in ((0.0, 0.0), (2.0, 2.0), (8.5, 8.5), (1e12, 8.5)):
        assert found.of_answer(answer(stated_s, decision)).modelled_s == taken_s


def test_the_bits_of_what_an_honest_device_states_stay() -> None:
    """The factors of faults may be multiplied in another order than here."""
    honest = answer(8.5 * (1 + 1e-15))
    assert durations(3.0, 3.0).of_answer(honest) is honest
    assert honest.update is not None
    assert durations(3.0, 3.0).of_update(honest.update) is honest.update


def test_a_device_of_which_nothing_is_known_is_believed() -> None:
    stated = answer(1e9, client="b")
    assert durations(3.0, 3.0).of_answer(stated) is stated
    foreign = answer(1e9, client="nobody")
    assert durations(3.0, 3.0).of_answer(foreign) is foreign


def test_the_log_says_it_once_for_a_device(caplog: pytest.LogCaptureFixture) -> None:
    found = durations(3.0, 12.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found.of_answer(answer(1e12))
    (record,) = caplog.records
    assert record.getMessage() == (
        "a states 1e+12 modelled seconds for its work; its work takes 8.5 to 17.5, and the server "
        "takes the nearest of these"
    )


# --- what the server knows of the training -------------------------------------------------------

TRAINING = Training(learning_rate=0.1, local_epochs=2, batch_size=10)
WINDOWS = [[Window(unit="round", first=1)]]


def slow(name: str, factor: float, *clients: str) -> DeviceFault:
    devices = dict.fromkeys(clients, 0)
    return DeviceFault(
        name=name, do=Slow(kind="slow", factor=factor), windows=WINDOWS, devices=devices
    )


FAULTS = [
    slow("first", 3.0, "a", "b"),
    slow("second", 5.0, "a"),
    DeviceFault(name="third", do=Offline(kind="offline"), windows=WINDOWS, devices={"a": 0}),
]


@pytest.mark.parametrize(("client", "factor"), [("a", 15.0), ("b", 3.0), ("c", 1.0)])
def test_training_takes_longest_under_all_its_faults(client: str, factor: float) -> None:
    """Two passes over 100 examples at 40 a second take 5 s."""
    known = training_time(TRAINING, client, 100, 40.0, FAULTS)
    assert known == TrainingTime(least_s=5.0, most_s=5.0 * factor)


def test_the_length_of_the_group_decides() -> None:
    known = training_time(TRAINING.of(GroupTraining(local_steps=3)), "c", 100, 40.0, [])
    assert known == TrainingTime(least_s=0.75, most_s=0.75)  # 3 minibatches of 10


def test_a_pace_may_be_as_far_from_the_usual_one_as_the_numbers_that_are_drawn() -> None:
    known = training_time(TRAINING, "b", 100, 40.0, FAULTS, sigma=0.1)
    farthest = np.exp(0.1 * np.abs(normals(np.array([1 - 2**-53]), np.array([0.0]))[0][0]))
    assert known.least_s <= 5.0 / farthest
    assert known.most_s == pytest.approx(15.0 * 2.363, rel=1e-3)


def test_without_a_speed_training_takes_no_time() -> None:
    assert training_time(TRAINING, "a", 100, None, FAULTS) == TrainingTime()


def test_a_scenario_whose_work_no_message_can_state_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training of a takes 3e\+12 modelled seconds, expected"):
        training_time(TRAINING, "a", 100_000_000, 0.001, FAULTS)

"""What a rational device still knows of a call when it is called again, by another process."""

from pathlib import Path

import numpy as np
import pytest

from muster.client.device.learner import Learner
from muster.client.device.memory import State
from muster.client.device.training_config import TrainingConfig
from muster.client.life.participation import UtilitySettings
from muster.client.life.settings import PackMember
from muster.client.training.settings import Training
from muster.common.clock import WallClock
from muster.common.compression import CODECS
from muster.common.config import validate
from muster.common.exchange import Call, Key
from muster.common.lines import LinkModel
from muster.common.tensors import WIRE
from muster.tasks.classification import Digits
from muster.tasks.models import Softmax
from muster.tasks.parts import layout_of
from muster.tasks.task import OpenTask

TASK = Digits(name="digits", model=Softmax(kind="softmax"), validation_ratio=0.25).open(2, 0)
MODULE = TASK.module()
WORK = TrainingConfig(
    "run",
    5,
    validate(Training, {"local_steps": 2}, "test"),
    layout_of(MODULE).schema,
    inline=True,
    heartbeat_s=1.0,
)
MODEL = np.zeros(WORK.entries, WIRE).tobytes()


def device(folder: Path, task: OpenTask = TASK) -> Learner:
    return Learner(
        PackMember(client="dev", index=1),
        task,
        MODULE,
        folder,
        True,
        CODECS.parse("none"),  # type: ignore[arg-type]
        LinkModel(),
        True,
        WallClock(),
        utility=UtilitySettings(margin=100),
    )


def call_of(round: int) -> Call:
    return Call(Key("dev", round, 1), round - 1, 0.0, bytes(16))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_device_that_gave_up_its_first_round_judges_again(
    tmp_path: Path, restarted: bool
) -> None:
    found = device(tmp_path)
    judgement = found.judge(call_of(1), MODEL, WORK, State(), metered=False)
    found.give_up(call_of(1), State(), (), judgement)
    if restarted:
        found = device(tmp_path)
    assert found.judgement_of(call_of(1)) is None

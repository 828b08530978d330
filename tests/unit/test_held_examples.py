"""What a device keeps of its examples, alone in its process and in a pack."""

from pathlib import Path

import numpy as np
import pytest

from muster.client.device.learner import Learner
from muster.client.life.settings import PackMember
from muster.common.clock import WallClock
from muster.common.compression import CODECS
from muster.common.lines import LinkModel
from muster.tasks.classification import Digits
from muster.tasks.regression import LinearRegression

TASKS = {"digits": Digits().open(3, 1), "linear": LinearRegression().open(3, 1)}


@pytest.mark.parametrize(
    ("task", "alone", "kept"),
    [("digits", True, True), ("digits", False, False), ("linear", False, True)],
)
def test_only_rows_of_data_that_a_pack_holds_are_not_kept(
    tmp_path: Path, task: str, alone: bool, kept: bool
) -> None:
    opened = TASKS[task]
    learner = Learner(
        PackMember(client="dev", index=1), opened, opened.module(), tmp_path, alone,
        CODECS.parse("none"), LinkModel(), True, WallClock(),  # type: ignore[arg-type]
    )  # fmt: skip
    assert (learner.examples() is learner.examples()) == kept
    assert learner.held == len(learner.examples()) > 0
    np.testing.assert_array_equal(learner.examples().x, opened.client(1).x)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.tasks.classification import Digits
from muster.tasks.partitions import Dirichlet
from muster.tasks.regression import LinearRegression
from muster.tasks.task import Task, held_out

ratios = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 80), ratios, st.integers(0, 2**63), st.integers(0, 9))
def test_examples_are_divided_by_the_share_and_one_is_left_to_train_on(
    examples: int, ratio: float, seed: int, index: int
) -> None:
    rows, out = held_out(examples, ratio, seed, index)
    assert sorted([*rows, *out]) == list(range(examples))
    assert len(rows) >= 1
    assert abs(len(out) - ratio * examples) <= 0.5 or len(rows) == 1
    again = held_out(examples, ratio, seed, index)
    assert (again[0].tolist(), again[1].tolist()) == (rows.tolist(), out.tolist())


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), ratios)
def test_what_belongs_together_stays_together(units: list[int], ratio: float) -> None:
    unit = np.array(units)
    rows, out = held_out(unit, ratio, seed=1, index=0)
    assert sorted([*rows, *out]) == list(range(len(units)))
    assert len(rows) >= 1
    assert not set(unit[rows]) & set(unit[out])


def test_nobody_who_has_nothing_is_asked_for_more() -> None:
    rows, out = held_out(0, 0.5, seed=1, index=0)
    assert (len(rows), len(out)) == (0, 0)


TASKS = [
    Digits(partition=Dirichlet(alpha=0.3)),
    LinearRegression(dimension=3, examples_per_client=10),
]


@pytest.mark.parametrize("task", TASKS, ids=["digits", "linear"])
def test_a_client_trains_on_what_it_does_not_hold_for_validation(task: Task) -> None:
    whole = task.open(population=4, seed=1)
    opened = task.model_copy(update={"validation_ratio": 0.2}).open(population=4, seed=1)
    for index in range(4):
        everything, train, out = (
            whole.client(index),
            opened.client(index),
            opened.validation(index),
        )
        assert len(whole.validation(index)) == 0
        assert len(train) == opened.examples[index]
        assert len(out) == pytest.approx(0.2 * whole.examples[index], abs=0.5)
        rows = sorted(x.tobytes() for x in [*train.x, *out.x])
        assert rows == sorted(x.tobytes() for x in everything.x)
    measured = opened.metrics_on(opened.module(), opened.validation(0))
    assert measured["loss"] > 0

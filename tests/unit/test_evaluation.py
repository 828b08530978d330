"""The evaluation, whatever becomes of the server that it works for."""

import io
import json

import numpy as np
import pytest

from muster.server.evaluation.messages import EvaluationResult, Order, Setup
from muster.server.evaluation.process import main

SETUP = Setup(task=json.dumps({"name": "linear", "dimension": 3}), population=2, seed=1)
BODY = np.zeros(3, "<f4").tobytes()


def order(version: int) -> bytes:
    return Order(version=version, round=version, length=len(BODY)).to_json().encode() + b"\n" + BODY


WHOLE = SETUP.to_json().encode() + b"\n" + order(1) + order(2)


def results(sent: bytes) -> list[int]:
    out = io.BytesIO()
    main(io.BytesIO(sent), out)
    return [EvaluationResult.from_json(line).version for line in out.getvalue().splitlines()]


def test_it_measures_every_model_that_comes_whole() -> None:
    assert results(WHOLE) == [1, 2]


@pytest.mark.parametrize("missing", [1, len(BODY) + 1, len(order(2)) - 1, len(order(2)) + 1])
def test_a_server_that_is_killed_in_the_middle_of_a_word_ends_its_work_and_nothing_else(
    missing: int,
) -> None:
    whole = [1] if missing < len(order(2)) else []
    assert results(WHOLE[:-missing]) == whole


def test_a_connection_without_a_word_is_nothing() -> None:
    assert results(b"") == []
    assert results(SETUP.to_json().encode()) == []

"""An app that cannot be hosted is refused before anything starts, with what it is and what works
instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.flower.conftest import TRAIN

from muster.common.errors import ConfigError

if TYPE_CHECKING:
    from tests.integration.flower.conftest import MakeApp

NO_WEIGHT = TRAIN.replace("num-examples", "n")
NO_ARRAYS = TRAIN.replace('"arrays": ArrayRecord(arrays), ', "")
OTHER_NAMES = TRAIN.replace("ArrayRecord(arrays)", "ArrayRecord({'w': ArrayRecord(arrays)['0']})")
OTHER_SHAPE = TRAIN.replace("ArrayRecord(arrays)", "ArrayRecord([a.ravel() for a in arrays])")
CONFIG = "\n        context.run_config['rate'] = 2.0" + TRAIN
BUFFERS = """
        arrays = {"fc.weight": np.zeros(2), "bn.steps": np.array(0), "mask": np.ones(2, bool)}
        arrays = ArrayRecord({n: ArrayRecord([a])["0"] for n, a in arrays.items()})
        FedAvg().start(grid, arrays, num_rounds=1)
"""
TREES = "FedAvg().start(grid, ArrayRecord([np.frombuffer(b'trees', np.uint8)]), num_rounds=1)"
SECURE = """
        from flwr.app import Message, RecordDict
        stage = RecordDict({"secagg": ConfigRecord({"stage": "setup"})})
        grid.send_and_receive([Message(stage, node, "train") for node in grid.get_node_ids()])
"""
ENDLESS = "FedAvg(min_available_nodes=5).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"train": "raise KeyError('data')"}, ["'train' as partition", "KeyError: 'data'"]),
        ({"train": "return None"}, ["it returned None, expected a Message"]),
        ({"train": NO_WEIGHT}, ["expected a MetricRecord with 'num-examples'", "found None"]),
        ({"train": NO_ARRAYS}, ["expected one ArrayRecord in the reply", "records metrics"]),
        ({"train": OTHER_NAMES}, ['the reply lacks ["0", "1"]', "it has: w"]),
        ({"train": OTHER_SHAPE}, ["the array '0' as float64 of shape (4,)", "of shape (2, 2)"]),
        ({"train": CONFIG}, ["changed context.run_config, which Flower forbids"]),
        ({"examples": 5}, ["num-examples = 10, expected at least 1 and at most task.examples = 5"]),
        ({"main": "return None"}, ["sent no message of training", "it ended before that"]),
        ({"main": "raise OSError('no disk')"}, ["sent no message", "OSError: no disk"]),
        ({"main": BUFFERS}, ["'bn.steps' (int64), 'mask' (bool)", '["bn.steps", "mask"]']),
        ({"main": BUFFERS, "local_arrays": ["bn.*", "mask", "fc*"]}, ["no array", "is left"]),
        ({"main": TREES}, ["'0' (uint8)", "cannot be averaged"]),
        ({"main": SECURE}, ["expected one ArrayRecord in the first message of training", "secagg"]),
        ({"main": ENDLESS, "rehearsal_s": 1.0}, ["within 1 s", "min_available_nodes"]),
        ({"server": "app = 3"}, ["server:app of", "is int, expected a flwr.serverapp.ServerApp"]),
        ({"client": "app = 3"}, ["client:app of", "is int, expected a flwr.clientapp.ClientApp"]),
        ({"client": "import no_such_library"}, ["No module named 'no_such_library'"]),
        ({"client": "ap = 3"}, ["AttributeError", "no attribute 'app'"]),
    ],
)
def test_an_app_is_refused(make_app: MakeApp, parts: dict[str, Any], expected: list[str]) -> None:
    task = make_app(**parts)
    with pytest.raises(ConfigError) as refused:
        task.module()
    for part in expected:
        assert part in str(refused.value)


def test_a_call_that_the_client_app_does_not_know_is_named(make_app: MakeApp) -> None:
    main = """
        from flwr.app import Message, RecordDict
        nodes = grid.get_node_ids()
        grid.send_and_receive([Message(RecordDict(), node, "query.hello") for node in nodes])
    """
    with pytest.raises(ConfigError, match=r"failed when it was called for 'query\.hello'"):
        make_app(main=main).module()


def test_a_metric_that_the_app_does_not_report_is_refused_with_those_that_it_does(
    make_app: MakeApp,
) -> None:
    with pytest.raises(ConfigError, match=r"no metric 'nll'; there are: eval_acc, eval_loss"):
        make_app(loss_metric="nll").module()


def test_an_app_that_fails_in_evaluation_is_refused_too(make_app: MakeApp) -> None:
    with pytest.raises(ConfigError, match=r"called for 'evaluate' as partition \d of 4: it ret"):
        make_app(evaluate="return 3").module()

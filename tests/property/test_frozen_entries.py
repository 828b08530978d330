"""Entries that training must not move keep their bits, whatever rules, updates and codecs do."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.common.compression import BUILT_IN as CODEC_KINDS
from muster.common.compression import CODECS, Codec, compress
from muster.common.masks import Mask, both, trained_coordinates
from muster.common.seeds import stream
from muster.common.tensors import Schema, TensorSpec
from muster.server.aggregation.next_model import NextModel
from muster.server.aggregators import AGGREGATORS, BUILT_IN, Aggregator
from muster.testing import rule_run
from muster.testing.rule_run import RuleRun
from muster.testing.strategies import courses


def test_trained_coordinates_are_those_of_the_trained_tensors() -> None:
    tensors = [TensorSpec("a", (2,)), TensorSpec("b", (1, 3), trained=False), TensorSpec("c", ())]
    found = trained_coordinates(Schema(tuple(tensors)))
    assert found is not None
    assert found.whole().tolist() == [True, True, False, False, False, True]
    assert trained_coordinates(Schema((tensors[0], tensors[2]))) is None


def test_coordinates_of_two_sets() -> None:
    first, second = Mask(np.array([True, True, False])), Mask(np.array([False, True, True]))
    together = both(first, second)
    assert together is not None
    assert together.whole().tolist() == [False, True, False]
    assert both(None, None) is None
    assert both(first, None) is both(None, first) is first


def rule_of(kind: str) -> Aggregator:
    rule = AGGREGATORS.parse({"kind": kind})
    assert isinstance(rule, Aggregator)
    return rule


@pytest.mark.parametrize("kind", sorted(BUILT_IN.keys() - {"flower"}))
@settings(max_examples=8)
@given(data=st.data(), chosen=st.integers(0, 2**31))
def test_no_rule_moves_frozen_entries(kind: str, data: st.DataObject, chosen: int) -> None:
    course = data.draw(courses(vectors_each=rule_of(kind).vectors()))
    size = len(course.model)
    trained = Mask(np.random.default_rng(chosen).random(size) < 0.5)
    frozen = ~trained.whole()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_run, "NextModel", partial(NextModel, trained=trained))
        points = RuleRun(rule_of(kind), course).play()
    free = RuleRun(rule_of(kind), course).play()
    for point, other in zip(points, free, strict=True):
        assert point.model[frozen].tobytes() == course.model[frozen].tobytes()
        assert point.model[~frozen].tobytes() == other.model[~frozen].tobytes()


@pytest.mark.parametrize("kind", sorted(CODEC_KINDS))
@given(seed=st.integers(0, 2**31), size=st.integers(1, 3000))
def test_no_codec_sends_or_remembers_what_did_not_move(kind: str, seed: int, size: int) -> None:
    draws = np.random.default_rng(seed)
    frozen = draws.random(size) < 0.5
    codec = CODECS.parse({"kind": kind})
    assert isinstance(codec, Codec)
    residual = None
    for number in range(3):
        delta = draws.standard_normal(size, np.float32)
        delta[frozen] = 0.0
        body, residual = compress(codec, delta, residual, partial(stream, seed, "c", number))
        assert not codec.decode(body, size)[frozen].any()
        assert residual is None or not residual[frozen].any()

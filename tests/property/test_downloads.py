"""Downloads that break anywhere, any number of times: the pieces are what the device asked for."""

from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.masks import Mask
from muster.common.tensors import WIRE, schema_of
from muster.server.account.ledger import Ledger
from muster.server.account.store import Store
from muster.server.aggregation.versions import ModelVersions
from muster.server.aggregators import AGGREGATORS, Aggregator
from muster.v1 import fleet_pb2 as pb
from muster.wire.bodies import checksum

PARAMETERS = 500
MODEL = np.random.default_rng(1).standard_normal(PARAMETERS).astype(WIRE)
CONTROL = np.random.default_rng(2).standard_normal(PARAMETERS).astype(WIRE)


def versions_of(folder: Path, kind: str) -> ModelVersions:
    (folder / "models").mkdir()
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.begin("run", [], at=1.0, population=0, moments={})
    store = Store(folder / "models", ledger, schema_of({"w": (PARAMETERS,)}))
    rule = AGGREGATORS.parse(kind)
    assert isinstance(rule, Aggregator)
    versions = ModelVersions(ledger, store, rule, inline=True, chunked=True)
    versions.load(MODEL)
    if rule.control:
        versions.set_newest(0, MODEL, {**versions.state, "control": CONTROL})
    return versions


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModelVersions:
    return versions_of(tmp_path_factory.mktemp("plain"), "fedplt")


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> ModelVersions:
    return versions_of(tmp_path_factory.mktemp("controlled"), "scaffold")


CUTS = st.lists(st.tuples(st.integers(1, 900), st.integers(1, 5)), min_size=1, max_size=6)
"""Of each call: the bytes of a chunk, and the number of chunks after which it breaks."""


def pieces(
    versions: ModelVersions, length: int, part: Mask | None, cuts: list[tuple[int, int]]
) -> bytes:
    """A download of which every call breaks after some chunks."""
    body, next_cut = b"", cycle(cuts)
    while len(body) < length:
        chunk_bytes, most = next(next_cut)
        came = versions.chunks_from(0, len(body), chunk_bytes, part)
        for message in islice(came, most):
            body += pb.ModelChunk.FromString(message).data
    return body


@given(CUTS)
def test_a_model_that_breaks_comes_whole(plain: ModelVersions, cuts: list[tuple[int, int]]) -> None:
    assert pieces(plain, 4 * PARAMETERS, None, cuts) == plain.newest.body == MODEL.tobytes()


@given(CUTS)
def test_a_control_variate_follows_the_model(
    controlled: ModelVersions, cuts: list[tuple[int, int]]
) -> None:
    wanted = MODEL.tobytes() + CONTROL.tobytes()
    assert pieces(controlled, 8 * PARAMETERS, None, cuts) == controlled.newest.body == wanted
    assert controlled.newest.checksum == checksum(wanted)


@given(CUTS, st.floats(0.01, 1.0), st.integers(0, 1000))
def test_a_slice_that_breaks_is_what_is_inside_the_mask(
    plain: ModelVersions, cuts: list[tuple[int, int]], share: float, seed: int
) -> None:
    chosen = np.random.default_rng(seed).random(PARAMETERS) < share
    part, wanted = Mask(chosen), MODEL[chosen].tobytes()
    assert pieces(plain, len(wanted), part, cuts) == wanted
    assert plain.download(0, part).checksum == checksum(wanted)

"""Masks as sets of coordinates, and updates that hold only the entries of a mask."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.common.compression import CODECS, Codec, compress, pread_of
from muster.common.exact_sum import ExactSum
from muster.common.masks import MASKINGS, GroupMasks, Layout, Mask
from muster.common.seeds import stream
from muster.common.tensors import schema_of
from muster.server.aggregators.coverage import Coverage, apply_covered
from muster.server.updates.uploads import UpdateFormat

CHOSEN = arrays(np.bool_, st.integers(1, 400))
CODEC_KINDS = ["none", "float16", "int8", "top-k"]


def codec(kind: str) -> Codec:
    found = CODECS.parse({"kind": kind, "ratio": 0.3} if kind == "top-k" else kind)
    assert isinstance(found, Codec)
    return found


@given(chosen=CHOSEN, data=st.data())
def test_a_mask_is_the_set_that_it_was_made_of(chosen: np.ndarray, data: st.DataObject) -> None:
    # Repeated, so that it has several blocks of counts.
    chosen = np.tile(chosen, data.draw(st.sampled_from([1, 90, 500])))
    mask = Mask(chosen)
    start = data.draw(st.integers(0, len(chosen)))
    stop = data.draw(st.integers(start, len(chosen)))
    assert mask.size == chosen.sum()
    assert np.array_equal(mask.within(start, stop), chosen[start:stop])
    assert np.array_equal(mask.whole(), chosen)
    assert mask.before(start) == chosen[:start].sum()
    vector = np.arange(len(chosen), dtype=np.float32)
    compact = mask.compact(vector)
    assert np.array_equal(compact, vector[chosen])
    expanded = mask.expand(-compact, into=vector)
    assert np.array_equal(expanded, np.where(chosen, -vector, vector))


@pytest.mark.parametrize("kind", CODEC_KINDS)
@given(chosen=CHOSEN.filter(lambda chosen: chosen.any()), data=st.data())
def test_an_update_with_a_mask_is_read_in_blocks_as_it_was_encoded(
    kind: str, chosen: np.ndarray, data: st.DataObject
) -> None:
    mask, found = Mask(np.tile(chosen, 7)), codec(kind)
    vector = stream(3, "vector").standard_normal(mask.parameters, np.float32)
    body = found.encode(mask.compact(vector), partial(stream, 3, "draws"))
    format = UpdateFormat(found, mask.size, None, mask)
    assert len(body) == format.length
    cuts = sorted(data.draw(st.lists(st.integers(0, mask.parameters), max_size=4)))
    pread = pread_of(body)
    parts = [
        format.read(pread, start, stop)
        for start, stop in zip([0, *cuts], [*cuts, mask.parameters], strict=True)
    ]
    read = np.concatenate(parts)
    assert (read[~mask.whole()] == 0).all()
    assert np.array_equal(read[mask.whole()], found.decode(body, mask.size))
    if kind == "none":
        assert np.array_equal(read, np.where(mask.whole(), vector, 0))


@given(
    st.lists(st.tuples(st.integers(1, 1000), arrays(np.bool_, 40)), min_size=1, max_size=6),
    st.integers(0, 99),
    st.booleans(),
)
def test_the_step_is_the_mean_over_those_who_trained_a_coordinate(
    sent: list[tuple[int, np.ndarray]], seed: int, compensates: bool
) -> None:
    draws = stream(seed, "deltas")
    examples = np.array([count for count, _ in sent], float)
    chosen = np.array([each for _, each in sent])
    model, *deltas = draws.standard_normal((len(sent) + 1, 40)).astype(np.float32)
    total, coverage = ExactSum(40), Coverage(40)
    for delta, trained, count in zip(deltas, chosen, examples, strict=True):
        masked = np.where(trained, delta, 0).astype(np.float32)
        total.add(masked, count)
    masks = [Mask(trained) for trained in chosen]
    coverage.enter(masks, examples.tolist(), examples.sum(), compensates)
    # The paper's formula: θ + ψ ⊙ Σ c_k m_k ⊙ Δ_k, with ψ_i = n / Σ n_k m_ki.
    trained_by = examples @ chosen
    psi = np.divide(examples.sum(), trained_by, out=np.zeros(40), where=trained_by > 0)
    shares = examples / examples.sum()
    step = (shares[:, None] * chosen * np.array(deltas, float)).sum(axis=0)
    wanted = model + (psi if compensates else 1) * step
    made = apply_covered(model, total, coverage, 1.0)
    np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)
    assert np.array_equal(made[trained_by == 0], model[trained_by == 0])
    covered = (trained_by > 0).mean()
    found = coverage.shares()
    assert found["share"] == covered
    assert found["updates"] == pytest.approx(chosen.sum(axis=0).mean())
    assert found.get("largest_psi", 0) == pytest.approx(psi.max())


@given(st.integers(1, 30), st.floats(0.05, 1), st.integers(0, 50), st.integers(1, 50))
def test_windows_of_a_ring_cover_every_tensor_equally_often(
    tensors: int, capacity: float, first: int, devices: int
) -> None:
    sizes = stream(tensors, "sizes").integers(1, 6, tensors)
    layout = Layout(schema_of({f"t{n}": (int(size),) for n, size in enumerate(sizes)}))
    if capacity * layout.parameters < sizes.max():
        return
    masking = MASKINGS.parse({"kind": "tensors", "schedule": "rotating"})
    masks = GroupMasks(masking, layout, capacity, 0)  # type: ignore[arg-type]
    found = [masks.of("dev", place, 3) for place in range(first, first + devices)]
    times = np.sum([mask.whole() for mask in found], axis=0)
    assert times.max() - times.min() <= 1
    assert max(mask.size for mask in found) <= masks.largest <= capacity * layout.parameters + 1e-6


def test_the_residual_of_top_k_has_the_size_of_the_mask() -> None:
    """`compress` is told nothing of masks: a device hands it the compact residual."""
    mask = Mask(np.arange(10) % 2 == 0)
    delta = np.arange(10, dtype=np.float32)
    body, left = compress(codec("top-k"), mask.compact(delta), None, partial(stream, 1, "draws"))
    assert len(body) == 2 * 8  # the two largest of five entries
    assert left is not None
    assert left.tolist() == [0, 2, 4, 0, 0]

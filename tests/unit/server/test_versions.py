"""The versions of the model: what is sent, what is stored, what is forgotten."""

from pathlib import Path

import numpy as np
import pytest

from muster.common.exchange import Commit
from muster.common.masks import Mask
from muster.common.tensors import WIRE, Vector, schema_of
from muster.server.account.ledger import Ledger
from muster.server.account.rows import RoundRow
from muster.server.account.store import Store
from muster.server.account.transaction import PendingTransaction
from muster.server.aggregation.versions import ModelVersions, Slices
from muster.server.aggregators.fedavg import FedAvg
from muster.v1 import fleet_pb2 as pb
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import checksum

PARAMETERS = CHUNK_BYTES // 4 + 3  # one chunk and a bit
SCHEMA = schema_of({"w": (PARAMETERS,)})


def vector(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(PARAMETERS).astype(WIRE)


@pytest.fixture(params=[(False, True), (True, True), (True, False)], ids=str)
def versions(tmp_path: Path, request: pytest.FixtureRequest) -> ModelVersions:
    """The versions of fleets whose models travel in chunks, in both ways, and inside messages."""
    inline, chunked = request.param
    return opened(tmp_path, inline=inline, chunked=chunked)


def opened(
    folder: Path, ledger: Ledger | None = None, inline: bool = False, chunked: bool = True
) -> ModelVersions:
    (folder / "models").mkdir(exist_ok=True)
    ledger = ledger or Ledger(folder / "ledger.sqlite")
    ledger.begin("run", [], at=1.0, population=0, moments={})
    store = Store(folder / "models", ledger, SCHEMA)
    made = ModelVersions(ledger, store, FedAvg(kind="fedavg"), inline, chunked)
    made.load(vector(0))
    return made


def body(versions: ModelVersions, offset: int, chunk_bytes: int) -> bytes:
    found = versions.chunks_from(versions.number, offset, chunk_bytes)
    return b"".join(pb.ModelChunk.FromString(message).data for message in found)


@pytest.mark.parametrize("chunk_bytes", [CHUNK_BYTES, 4096])
@pytest.mark.parametrize("offset", [0, 8, CHUNK_BYTES, 4 * PARAMETERS - 4, 4 * PARAMETERS])
def test_from_every_byte_on_the_rest_of_the_body_is_sent_and_nothing_past_its_end(
    versions: ModelVersions, offset: int, chunk_bytes: int
) -> None:
    assert body(versions, offset, chunk_bytes) == vector(0).tobytes()[offset:]
    assert versions.newest.checksum == checksum(vector(0).tobytes())


@pytest.mark.parametrize("chunk_bytes", [CHUNK_BYTES, 4096])
def test_from_every_byte_on_the_rest_of_a_part_is_sent(
    versions: ModelVersions, chunk_bytes: int
) -> None:
    random = np.random.default_rng(5)
    for share in (0.0001, 0.3, 1.0):
        chosen = random.random(PARAMETERS) < share
        part, wanted = Mask(chosen), vector(0)[chosen].tobytes()
        assert versions.download(0, part).checksum == checksum(wanted)
        assert versions.download(0, part).body == wanted
        for offset in (0, 4, len(wanted) // 8 * 4, len(wanted)):
            found = versions.chunks_from(0, offset, chunk_bytes, part)
            assert b"".join(pb.ModelChunk.FromString(m).data for m in found) == wanted[offset:]
        with pytest.raises(IndexError):
            versions.chunks_from(0, len(wanted) + 1, chunk_bytes, part)
        with pytest.raises(KeyError):
            versions.chunks_from(1, 0, chunk_bytes, part)


def test_slices_are_made_once_and_the_oldest_are_forgotten_when_they_take_too_much() -> None:
    slices, made = Slices(kept_bytes=100), []

    def model(version: int) -> Vector:
        made.append(version)
        return np.arange(20, dtype=WIRE)

    part = Mask(np.arange(20) % 2 == 1)  # 40 bytes
    for version, times in [(1, 1), (2, 1), (1, 1), (3, 1), (1, 1), (2, 2)]:
        found = slices.of(version, part, lambda of=version: model(of))  # type: ignore[misc]
        assert np.frombuffer(found.body, WIRE).tolist() == list(range(1, 20, 2))
        assert made.count(version) == times
    large = Mask(np.ones(20, np.bool_))
    assert len(Slices(kept_bytes=1).of(1, large, lambda: model(9)).body) == 80


def test_other_versions_and_bytes_after_the_end_are_refused(versions: ModelVersions) -> None:
    with pytest.raises(KeyError):
        versions.chunks_from(1, 0, CHUNK_BYTES)
    with pytest.raises(IndexError):
        versions.chunks_from(0, 4 * PARAMETERS + 1, CHUNK_BYTES)


def test_a_version_is_kept_until_it_is_superseded(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    versions = opened(tmp_path, ledger)
    for number in (1, 2):
        stored = versions.put(number, vector(number), {})
        row = RoundRow(
            number, number - 1, number, "aggregated", 1, 1, 1, 1.0, 1.0, 1.0, 1.0, 0.0, 60.0, None,
            None, 0, 0, 10.0, 11.0, 1.0,
        )  # fmt: skip
        forget = versions.superseded({number, number - 1})
        ledger.commit(row, [], PendingTransaction(), stored.model, stored.state, forget)
        versions.commit(Commit(number, number), made=True, forget=forget)
    assert versions.committed == Commit(2, 2)
    assert versions.kept == {1: 1, 2: 2}
    assert versions.put(3, None, {}) == (None, None), "an empty round makes no version"
    again = opened(tmp_path)  # as a server that is started again
    assert (again.number, again.committed, again.kept) == (2, Commit(2, 2), {1: 1, 2: 2})
    assert np.array_equal(again.model, vector(2))
    assert np.array_equal(again.offered(1), vector(1))

"""The versions of the model: the newest one, ready to be sent, those that are still stored, and
slices, the parts of them that devices with narrower models download."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muster.common.exchange import Body, Commit
from muster.common.files import write_atomic
from muster.common.masks import Mask
from muster.common.tensors import WIRE, Vector
from muster.server.account.ledger import Ledger
from muster.server.account.round_files import model_name
from muster.server.account.run_rows import StoredVector
from muster.server.account.store import Store
from muster.server.aggregators import Aggregator, State
from muster.wire import CHUNK_BYTES
from muster.wire.bodies import body_view, checksum, chunk_message, chunk_messages, chunks

VERSIONS = "versions"
"""Name of the folder of kept versions, in the run folder."""

KEPT_BYTES = 32 << 20


class VersionBody(NamedTuple):
    """What devices download of a version that they train from: all of it, or a part.

    Attributes:
        body: as it travels inside a message; empty for a whole version that is too large for that.
        checksum: of its body, also if that is too large.
    """

    body: Body
    checksum: bytes


class Slices:
    """Makes slices when they are needed and keeps them for a while. Devices of a group that train
    the same slice share it.

    Args:
        kept_bytes: slices are forgotten, beginning with the one that was not used for the longest
            time, while they take more than this. The newest one is always kept.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = kept_bytes
        self._held = 0
        self._kept: OrderedDict[tuple[int, Mask], VersionBody] = OrderedDict()

    def of(self, version: int, part: Mask, vector: Callable[[], Vector]) -> VersionBody:
        """The slice of a version.

        Args:
            vector: returns the version, if the slice has to be made.
        """
        found = self._kept.get((version, part))
        if found is not None:
            self._kept.move_to_end((version, part))
            return found
        body = body_view(part.compact(vector()))
        made = self._kept[version, part] = VersionBody(body, checksum(body))
        self._held += len(body)
        while self._held > self._most and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._held -= len(old.body)
        return made


class StoredVersion(NamedTuple):
    """The vectors of a version as the ledger will have them, small ones with their bytes. The files
    of the others are written."""

    model: StoredVector | None
    state: StoredVector | None


class ModelVersions:
    """The newest version of the model in memory, and older ones in the ledger and its files.

    Attributes:
        committed: the newest durable round and version. `number` may be ahead of it while a round
            is being written.
        number: the newest version; `model` is its vector and `state` the aggregator's state.
        newest: what devices download of it: the model, and the aggregator's control variate if it
            has one.
        kept: the stored versions, each with the round that made it.

    Args:
        inline: models travel inside messages.
        chunked: models travel in chunks, to some devices at least.
        older: older versions may still be asked for.
        kept_in: the folder in which every `keep`-th version is kept.
        keep: None: none is kept.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        rule: Aggregator,
        inline: bool,
        chunked: bool,
        older: bool = False,
        kept_in: Path = Path(VERSIONS),
        keep: int | None = None,
    ) -> None:
        self._kept_in, self._keep = kept_in, keep
        self.committed = Commit()
        self.newest = VersionBody(b"", b"")
        self._whole = memoryview(b"")
        self.number = -1
        self._older: dict[int, VersionBody] | None = {} if older else None
        self._ledger = ledger
        self._store = store
        self._rule = rule
        self._inline = inline
        self._chunked = chunked
        self._chunks: list[bytes] = []
        self._slices = Slices()

    def load(self, initial: Vector) -> None:
        """Load the newest version of the ledger; the first time, store `initial` as version 0."""
        ledger, store = self._ledger, self._store
        version = ledger.newest_version()
        if version is None:
            state = self._rule.initial_state(initial)
            ledger.enter_initial(store.put_model(0, initial), store.put_state(0, state))
            version = 0
        self.kept = dict(ledger.kept())
        store.clean(self.kept)
        self.committed = Commit(ledger.newest_round(), version)
        if self._older is not None:
            for older in self.kept.keys() - {version}:
                body = body_view(store.get_model(older))
                self._older[older] = self._as_downloaded(body)
        self.set_newest(version, store.get_model(version), store.get_state(version))

    def set_newest(self, version: int, model: Vector, state: State) -> None:
        """Make this version the newest one, which devices get."""
        if self._older is not None and self.number >= 0:
            self._older[self.number] = self.newest
        self.number, self.model, self.state = version, model, state
        body = self._whole = self._body(model, state)
        self.newest = self._as_downloaded(body)
        if self._chunked:
            self._chunks.clear()  # first, so that old and new chunks are not in memory together
            self._chunks = chunk_messages(body)

    def _as_downloaded(self, body: memoryview) -> VersionBody:
        """What devices download of a whole version, given its body."""
        return VersionBody(bytes(body) if self._inline else b"", checksum(body))

    def _body(self, model: Vector, state: State) -> memoryview:
        """The body of what devices download: the model, and the control variate if the rule has
        one."""
        if not self._rule.control:
            return body_view(model)
        return body_view(np.concatenate([model, self._rule.control_variate(state)]))

    def download(self, version: int, part: Mask | None = None) -> VersionBody:
        """A version that devices train from.

        Args:
            part: the coordinates that the device downloads; None: the whole model.
        """
        if part is not None:
            return self._slice(version, part)
        if version == self.number or self._older is None:
            return self.newest
        return self._older[version]

    def _slice(self, version: int, part: Mask) -> VersionBody:
        return self._slices.of(version, part, partial(self.vector_of, version))

    def vector_of(self, version: int) -> Vector:
        """A version that devices train from: float32, shape (parameters,), read-only."""
        if version == self.number or self._older is None:
            return self.model
        older = self._older[version]
        body = older.body or self._store.map_model(version)
        return np.frombuffer(body, WIRE).astype(np.float32, copy=False)

    def chunks_from(
        self, version: int, offset: int, chunk_bytes: int, part: Mask | None = None
    ) -> Iterable[bytes]:
        """A version that devices train from, or a part of it, as serialised messages of Fetch, from
        a byte of its body on.

        Args:
            chunk_bytes: length of a chunk, at most. Chunks of `CHUNK_BYTES` of the whole newest
                version are prepared once if models travel in chunks. A model that travels inside
                messages is fetched only by a process that has lost updates which it held back.
            part: the coordinates that the device downloads; None: all.

        Raises:
            KeyError: no device trains from `version`.
            IndexError: its body ends before `offset`.
        """
        newest = version == self.number
        older = None if newest else (self._older or {})[version]
        if part is not None:
            body = memoryview(self._slice(version, part).body)
        elif older is None:
            body = self._whole
        else:
            body = memoryview(older.body) if older.body else self._store.map_model(version)
        if offset > len(body):
            raise IndexError(offset)
        first, rest = divmod(offset, CHUNK_BYTES)
        prepared = self._chunked and newest and part is None
        if prepared and chunk_bytes >= CHUNK_BYTES and not rest:
            return self._chunks[first:]
        return (chunk_message(chunk) for chunk in chunks(body, offset, chunk_bytes))

    def offered(self, version: int) -> Vector:
        """The model that the run would offer as its result if it ended with `version`."""
        state, model = self.state, self.model
        if version != self.number:
            state, model = self._store.get_state(version), self._store.get_model(version)
        return self._rule.result(state, model)

    # --- storage; these run in the worker thread -------------------------------------------------

    def put(self, version: int, model: Vector | None, state: State) -> StoredVersion:
        """Write the files of a version that is about to be committed; None: there is no new one."""
        if model is None:
            return StoredVersion(None, None)
        store = self._store
        if self._keep is not None and version % self._keep == 0:
            self._kept_in.mkdir(exist_ok=True)
            parts = store.model_file(self._rule.result(state, model))
            write_atomic(self._kept_in / model_name(version), *parts)
        return StoredVersion(store.put_model(version, model), store.put_state(version, state))

    def superseded(self, needed: Iterable[int]) -> list[int]:
        """The stored versions that are not needed any more."""
        return sorted(self.kept.keys() - set(needed))

    def commit(self, committed: Commit, made: bool, forget: Sequence[int]) -> None:
        """Record what the ledger has committed.

        Args:
            made: the round made a new version.
            forget: the versions that the ledger has forgotten; their files are removed.
        """
        self.committed = committed
        if made:
            self.kept[committed.version] = committed.round
        self.remove(forget)

    def remove(self, forget: Sequence[int]) -> None:
        """Remove the files of versions that the ledger has forgotten."""
        self._store.remove(forget)
        for version in forget:
            self.kept.pop(version, None)
            if self._older is not None:
                self._older.pop(version, None)

"""The storage of the model's versions and of the aggregator's states.

Small ones are in the ledger's rows. Others are in immutable files named by version, which are
written and fsynced before the transaction that names them.
"""

import hashlib
import mmap
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from muster.common.errors import LedgerError
from muster.common.files import remove_unfinished, write_atomic
from muster.common.tensors import WIRE, Schema, Vector, safetensors_header
from muster.server.account.ledger import Ledger
from muster.server.account.round_files import model_name, state_name
from muster.server.account.run_rows import StoredVector
from muster.server.aggregators import State
from muster.wire import INLINE_BYTES
from muster.wire.bodies import body_view


class Store:
    """Writes and reads the models and aggregator states of a run.

    Args:
        folder: `models/` of the run folder.
    """

    def __init__(self, folder: Path, ledger: Ledger, schema: Schema) -> None:
        self._folder = folder
        self._ledger = ledger
        self._header = safetensors_header(schema)
        self._files: set[str] = set()
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="sha256")
        folder.mkdir(exist_ok=True)

    def put_model(self, version: int, model: Vector) -> StoredVector:
        """Write a model. It is durable, but becomes a version only when a transaction names it."""
        return self._put(model_name(version), *self.model_file(model))

    def put_state(self, version: int, state: State) -> StoredVector | None:
        """Write an aggregator's state. Return None if the state is empty."""
        if not state:
            return None
        # reshape keeps scalars 0-dimensional; ascontiguousarray alone would make them vectors.
        arrays = {n: np.ascontiguousarray(a).reshape(np.shape(a)) for n, a in state.items()}
        return self._put(state_name(version), save(arrays))

    def get_model(self, version: int) -> Vector:
        """Read a model: float32, shape (parameters,), read-only.

        Raises:
            LedgerError: the model is missing or differs from the committed one.
        """
        file = self._get(model_name(version), self._ledger.model(version))
        return np.frombuffer(file, WIRE, offset=len(self._header)).astype(np.float32, copy=False)

    def map_model(self, version: int) -> memoryview:
        """The body of a large model, mapped from its file. It does not read the ledger, so any
        thread may call it."""
        with open(self._folder / model_name(version), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(mapped)[len(self._header) :]

    def get_state(self, version: int) -> State:
        """Read an aggregator's state; empty if none was stored.

        Raises:
            LedgerError: the state is missing or differs from the committed one.
        """
        stored = self._ledger.state(version)
        return load(self._get(state_name(version), stored)) if stored else {}

    def model_file(self, model: Vector) -> tuple[bytes, memoryview]:
        """Return the parts of a safetensors file that holds `model`: header and body."""
        return self._header, body_view(model)

    def remove(self, versions: Iterable[int]) -> None:
        """Remove the files of versions that the ledger has forgotten."""
        for version in versions:
            for name in {model_name(version), state_name(version)} & self._files:
                (self._folder / name).unlink()
                self._files.discard(name)

    def clean(self, kept: Iterable[int]) -> None:
        """Remove the files that no transaction names; called at the start.

        Args:
            kept: the versions that still have their bytes.
        """
        remove_unfinished(self._folder)
        named = {name for v in kept for name in (model_name(v), state_name(v))}
        for path in self._folder.glob("*.safetensors"):
            if path.name in named:
                self._files.add(path.name)
            else:
                path.unlink()

    def _put(self, name: str, *parts: bytes | memoryview) -> StoredVector:
        size = sum(len(part) for part in parts)
        if size <= INLINE_BYTES + len(self._header):
            body = b"".join(parts)
            return StoredVector(hashlib.sha256(body).hexdigest(), size, body)
        # The file is written while another thread hashes it, because SHA-256 is the slower part.
        digest = self._hashing.submit(_sha256, *parts)
        write_atomic(self._folder / name, *parts, durable=True)
        self._files.add(name)
        return StoredVector(digest.result(), size, None)

    def _get(self, name: str, stored: StoredVector) -> bytes:
        path, body = self._folder / name, stored.body
        if body is None:
            try:
                body = path.read_bytes()
            except FileNotFoundError:
                raise LedgerError(
                    f"{path} is missing; the ledger names it. Put it back, or start afresh"
                ) from None
        if _sha256(body) != stored.sha256:
            raise LedgerError(f"{name} is not what was committed: its SHA-256 differs")
        return body


def _sha256(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()

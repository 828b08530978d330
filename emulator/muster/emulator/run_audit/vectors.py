"""The vectors of a run folder: its models and the updates that were kept; and what stands for those
that it does not have."""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Never

import numpy as np
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from muster.common.compression import pread_of
from muster.common.errors import ConfigError
from muster.common.exact_sum import squared_norm
from muster.common.exchange import Key
from muster.common.secure.grid import SumFormat
from muster.common.secure.padded import padded_sum
from muster.common.tensors import Vector
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import CheckLog
from muster.server.account.round_files import model_name
from muster.server.settings.process import ServerProcess
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.kept import SUMS, UPDATES, kept_name, sum_name
from muster.server.updates.secure_sums import OpenedSum

INITIAL = "setup/initial.safetensors"
"""The file of version 0."""


class Unknown(Exception):
    """The rule asks for something that the run folder does not have. The text says what."""


class UnknownState(Mapping[str, Any]):
    """The state of a rule that follows from models which the run folder does not have."""

    def __getitem__(self, name: str) -> Never:
        raise Unknown("models, which are made again only with server.keep_updates")

    def __iter__(self) -> Iterator[str]:
        return self[""]

    def __len__(self) -> int:
        return self[""]


class UnknownBody:
    """The vector of an update that was not kept."""

    def squared_norm(self, parameters: int) -> float:
        self.read(0, parameters)

    def read(self, start: int, stop: int) -> Never:
        raise Unknown("the updates, which are kept with server.keep_updates")

    def close(self) -> None:
        """It holds nothing."""


class KeptBody:
    """The vector of an update that was kept, as one of the whole model."""

    def __init__(self, vector: Vector) -> None:
        self._vector = vector

    def squared_norm(self, parameters: int) -> float:
        return squared_norm(self.read, parameters)

    def read(self, start: int, stop: int) -> Vector:
        return self._vector[start:stop]

    def close(self) -> None:
        """It stays in memory until the round is made again."""


def key_of(row: Row) -> Key:
    """The key of an update, from its row of `contributions`."""
    return Key(row["client"], row["call_round"], row["attempt"])


def kept_bodies(
    evidence: Evidence, log: CheckLog, formats: UpdateFormats, round: int, folded: Sequence[Row]
) -> list[KeptBody]:
    """The updates of a round; fewer if some are missing or damaged.

    Args:
        formats: of the updates of the run.
    """
    path, found = evidence.folder / UPDATES / kept_name(round), list[KeptBody]()
    if not folded:
        return found
    try:
        with safe_open(path, "numpy") as file:
            stated, kept = file.metadata() or {}, sorted(file.keys())
            clients = sorted(row["client"] for row in folded)
            log.compare(f"clients in {UPDATES}/{path.name}", clients, kept, round)
            for row in folded:
                client = row["client"]
                if client not in kept:
                    continue
                body = file.get_tensor(client).tobytes()
                checksum = xxhash.xxh3_128_hexdigest(body)
                log.compare("checksum of the kept update", stated.get(client), checksum, round,
                            client)  # fmt: skip
                if checksum == stated.get(client):
                    vector = formats.of(key_of(row)).read(pread_of(body), 0, formats.entries)
                    found.append(KeptBody(np.array(vector)))
    except (OSError, SafetensorError) as error:
        log.require(False, f"{UPDATES}/{path.name}", "the kept updates of the round", error, round)
    return found


def kept_sums(
    evidence: Evidence,
    log: CheckLog,
    formats: UpdateFormats,
    round: int,
    folded: Sequence[Row],
    format: SumFormat,
) -> list[OpenedSum] | None:
    """The secure sums of a round; None if they are missing, or have another length.

    Args:
        formats: of the updates of the run.
        folded: the updates that are in them.
    """
    name = f"{SUMS}/{sum_name(round)}"
    path = evidence.folder / name
    body = path.read_bytes() if path.is_file() else b""
    masks = [part.mask for part in formats.parts([key_of(row) for row in folded])]
    totals = [
        padded_sum(formats.entries if mask is None else mask.size, format.grid) for mask in masks
    ]
    lengths = [total.entry_bytes * total.parameters for total in totals]
    log.compare(f"bytes of {name}", sum(lengths), len(body), round)
    if sum(lengths) != len(body):
        return None
    found, read = [], BytesIO(body)
    for total, length, mask in zip(totals, lengths, masks, strict=True):
        total.add_encoded(read.read(length))
        found.append(OpenedSum(total, [total.largest()], mask))
    return found


def initial_of(evidence: Evidence, config: ServerProcess) -> Vector:
    """Version 0.

    Raises:
        ConfigError: its file is missing or damaged.
    """
    path = evidence.folder / INITIAL
    try:
        return _vector(path.read_bytes(), config)
    except (OSError, KeyError, SafetensorError) as error:
        raise ConfigError(f"{path}: expected the initial model, found {error}") from None


def newest_version(evidence: Evidence, config: ServerProcess) -> Vector | None:
    query = "SELECT version, body FROM versions ORDER BY version DESC LIMIT 1"
    row = next(evidence.rows(query), None)
    if row is None:
        return None
    path = evidence.folder / "models" / model_name(row["version"])
    if row["body"] is None and not path.is_file():
        return None
    try:
        return _vector(row["body"] or path.read_bytes(), config)
    except (KeyError, SafetensorError):
        return None  # another check reports that it is damaged


def _vector(data: bytes, config: ServerProcess) -> Vector:
    """The tensors of a model in the order of their bytes."""
    tensors = load(data)
    parts = [tensors[tensor.name].ravel() for tensor in config.tensors.tensors]
    return np.concatenate(parts, dtype=np.float32)


def sha_of_version(evidence: Evidence, version: int) -> str | None:
    found = evidence.one("SELECT sha256 FROM versions WHERE version = ?", version)
    return None if found is None else str(found)

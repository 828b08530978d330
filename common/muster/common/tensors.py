"""The schema of a model, and the flat vector of its tensors.

A model is transferred and aggregated as one float32 vector: its tensors in the order of the schema,
each in row-major order. Only the server sends a schema.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""float32, shape (parameters,)."""

WIRE = np.dtype("<f4")


@dataclass(frozen=True)
class TensorSpec:
    """Name and shape of one float32 tensor.

    Attributes:
        counted: whether forward passes change it, and not training. That does not travel, so it is
            not compared.
    """

    name: str
    shape: tuple[int, ...]
    counted: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Schema:
    """The tensors of a model that travel, in order; counted ones are the last.

    Attributes:
        frozen: the checksum of the parameters that server and devices build for themselves; empty
            if there are none.
    """

    tensors: tuple[TensorSpec, ...]
    frozen: str = ""

    @cached_property
    def parameters(self) -> int:
        """Number of entries of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def counted(self) -> int:
        """Number of entries of the counted tensors."""
        return sum(tensor.size for tensor in self.tensors if tensor.counted)

    @cached_property
    def body_bytes(self) -> int:
        """Length of the model as raw little-endian float32."""
        return self.parameters * WIRE.itemsize

    def flatten(self, tensors: Mapping[str, npt.NDArray[np.float32]]) -> Vector:
        """Return the tensors as one vector, a copy."""
        return np.concatenate([tensors[t.name].ravel() for t in self.tensors], dtype=np.float32)

    def unflatten(self, vector: Vector) -> dict[str, npt.NDArray[np.float32]]:
        """Return views into `vector`, by name."""
        named, start = {}, 0
        for tensor in self.tensors:
            named[tensor.name] = vector[start : start + tensor.size].reshape(tensor.shape)
            start += tensor.size
        return named


def schema_of(tensors: Mapping[str, Sequence[int]], frozen: str = "") -> Schema:
    """A schema from the names and shapes of tensors, in their order."""
    specs = tuple(TensorSpec(name, tuple(shape)) for name, shape in tensors.items())
    return Schema(specs, frozen)


def safetensors_header(schema: Schema) -> bytes:
    """The header that makes a model's raw body a safetensors file.

    The safetensors library is not used because it puts tensors in an order of its own. In the order
    of the schema the file's body is the same buffer that is sent to devices, so a version is
    serialised only once. Format: https://github.com/huggingface/safetensors#format
    """
    entries, start = {}, 0
    for tensor in schema.tensors:
        end = start + tensor.size * WIRE.itemsize
        entries[tensor.name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def sum_of_squares(values: npt.NDArray[np.float64]) -> float:
    """Σ x², added in pairs by NumPy.

    `values @ values` would use the threads of BLAS: its last bits depend on how many there are, and
    on a machine whose cores are busy they wait for each other a hundred times as long as they add.
    """
    return float(np.add.reduce(values * values))

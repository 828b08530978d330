"""The state that a user's own trainer keeps on a device from round to round, as bytes.

It is a dictionary of tensors, arrays, numbers, texts, None, and of lists, tuples and dictionaries
of these, for example the state of an optimizer. The bytes are JSON, followed by the tensors in the
format of safetensors.
"""

import json
import struct
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from muster.common.errors import ConfigError

_LENGTH = struct.Struct("<Q")

_PLAIN = (str, bool, int, float, type(None))


def to_bytes(state: dict[str, Any], kind: str) -> bytes:
    """The bytes of a state.

    Args:
        kind: the name of the trainer, for messages.

    Raises:
        ConfigError: something in the state cannot be kept.
    """
    if not state:
        return b""
    tensors: list[Tensor] = []
    text = json.dumps(_packed(state, tensors, "state", kind)).encode()
    return _LENGTH.pack(len(text)) + text + save({str(n): t for n, t in enumerate(tensors)})


def from_bytes(kept: bytes) -> dict[str, Any]:
    """The state that `to_bytes` wrote; an empty dictionary of no bytes."""
    if not kept:
        return {}
    (length,) = _LENGTH.unpack_from(kept)
    end = _LENGTH.size + length
    tensors = load(kept[end:])
    state: dict[str, Any] = _unpacked(json.loads(kept[_LENGTH.size : end]), tensors)
    return state


def _packed(value: Any, tensors: list[Tensor], place: str, kind: str) -> Any:
    """A value as JSON; a list stands for everything that JSON does not tell apart."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        pairs = [
            [_key(key, place, kind), _packed(part, tensors, f"{place}[{key!r}]", kind)]
            for key, part in value.items()
        ]
        return ["dict", pairs]
    if isinstance(value, list | tuple):
        parts = [_packed(part, tensors, f"{place}[{n}]", kind) for n, part in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", parts]
    if (tensor := _tensor(value)) is not None:
        tensors.append(tensor)
        return ["array" if isinstance(value, np.ndarray) else "tensor", len(tensors) - 1]
    raise ConfigError(
        f"training.trainer: {kind} left {place} = {value!r:.100} of type {type(value).__name__}, "
        f"expected tensors, arrays, numbers, texts, None, and lists, tuples and dictionaries of "
        f"these"
    )


def _key(key: object, place: str, kind: str) -> object:
    if isinstance(key, str | int):
        return key
    raise ConfigError(
        f"training.trainer: {kind} left the key {key!r:.100} in {place}, expected texts or whole "
        f"numbers as keys"
    )


def _tensor(value: object) -> Tensor | None:
    """A copy of a tensor or an array as a tensor; None if it is something else."""
    if isinstance(value, np.ndarray):
        try:
            value = torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape))
        except TypeError:  # for example texts
            return None
    return value.detach().cpu().clone().contiguous() if isinstance(value, Tensor) else None


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    what, content = value
    if what == "dict":
        return {key: _unpacked(part, tensors) for key, part in content}
    if what in ("list", "tuple"):
        parts = [_unpacked(part, tensors) for part in content]
        return parts if what == "list" else tuple(parts)
    tensor = tensors[str(content)]
    return tensor.numpy() if what == "array" else tensor

"""Targets: bodies inside messages, the codecs of updates, and masks."""

import random
import struct
from typing import Any, NamedTuple

import numpy as np
from tests.fuzz.mutation import json_mutation
from tests.fuzz.target import Target, same

from muster.common.compression import Codec, EntryRange, Whole, pread_of
from muster.common.compression.float16 import Float16
from muster.common.compression.int8 import Int8
from muster.common.compression.top_k import TopK
from muster.common.config import Section, validate
from muster.common.errors import ConfigError, RemoteProtocolError
from muster.common.masks import AnyMasking, GroupMasks, Layout, UnitAxis, UnitLayer
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector, schema_of
from muster.wire.bodies import decode_vector, split_bodies, with_bodies

# --- bodies at the beginning of a message --------------------------------------------------------


def _verify_bodies(found: tuple[list[memoryview], bytes]) -> None:
    bodies, rest = found
    again, rest_again = split_bodies(with_bodies(rest, bodies))
    assert (list(map(bytes, again)), rest_again) == (list(map(bytes, bodies)), rest)
    for body in bodies:
        if len(body) % 4 == 0:
            assert decode_vector(body, len(body) // 4).tobytes() == bytes(body)


# --- codecs --------------------------------------------------------------------------------------

_HEAD = struct.Struct("<BH")
"""An input has the number of a codec, the number of parameters, and a body."""

_CODECS: tuple[Codec, ...] = (
    Whole(kind="none"),
    Float16(kind="float16"),
    Int8(kind="int8"),
    TopK(kind="top-k"),
    TopK(kind="top-k", ratio=0.3),
    TopK(kind="top-k", ratio=1.0),
)


_LARGEST_INT8 = np.finfo(np.float32).max * (1 - 2**-22)
"""Larger values may become infinite with int8, as its documentation says."""


class _CheckedBody(NamedTuple):
    codec: Codec
    parameters: int
    body: bytes
    entries: EntryRange


def _check_body(data: bytes) -> _CheckedBody:
    if len(data) < _HEAD.size:
        raise RemoteProtocolError("no head")
    number, parameters = _HEAD.unpack_from(data)
    codec, body = _CODECS[number % len(_CODECS)], data[_HEAD.size :]
    # As the server does it: the length first, which is known beforehand.
    if len(body) != codec.length(parameters):
        raise RemoteProtocolError("another length")
    return _CheckedBody(codec, parameters, body, codec.check(pread_of(body), parameters))


def _verify_body(found: _CheckedBody) -> None:
    codec, parameters, body, extent = found
    vector = codec.decode(body, parameters)
    assert vector.dtype == np.float32
    assert len(vector) == parameters
    halves = [(0, parameters // 3), (parameters // 3, parameters)]
    parts = [codec.read(pread_of(body), *half, parameters) for half in halves]
    np.testing.assert_array_equal(np.concatenate(parts), vector)
    if not np.isfinite(vector).all():
        assert not np.isfinite(extent.largest)
        return
    assert extent.largest == np.abs(vector).max(initial=0)
    if codec.kind == "int8" and extent.largest > _LARGEST_INT8:
        return
    encoded = codec.encode(vector, lambda: np.random.default_rng(1))
    codec.check(pread_of(encoded), parameters)
    again = codec.decode(encoded, parameters)
    if codec.kind == "int8":
        assert (np.abs(again - vector) <= _steps(vector)).all()
    else:
        np.testing.assert_array_equal(again, vector)


def _steps(vector: Vector) -> FloatArray:
    """The largest error of int8: for each entry, 1/127 of the largest of its block, rounded up."""
    blocks = [vector[start : start + 1024] for start in range(0, len(vector), 1024)]
    steps = [
        np.full(len(block), np.nextafter(np.abs(block).max() / 127, np.inf)) for block in blocks
    ]
    return np.concatenate([np.zeros(0), *steps]) * (1 + 2**-20) + 2**-149


def _bodies_of_codecs() -> list[bytes]:
    vector = np.linspace(-1, 1, 40, dtype=np.float32)
    return [
        _HEAD.pack(number, len(vector)) + bytes(codec.encode(vector, np.random.default_rng))
        for number, codec in enumerate(_CODECS)
    ]


def _mutate_body(data: bytes, draws: random.Random) -> bytes:
    """Give the input another codec or number of parameters, and its body the length that fits."""
    if len(data) < _HEAD.size:
        data = bytes(_HEAD.size)
    number, parameters = _HEAD.unpack_from(data)
    if draws.random() < 0.5:
        number = draws.randrange(len(_CODECS))
    if draws.random() < 0.5:
        parameters = draws.choice((0, 1, 2, 7, 33, 127, 500, 1023, 1024, 1025))
    body = bytearray(data[_HEAD.size :])
    length = _CODECS[number % len(_CODECS)].length(parameters)
    body = body[:length] + bytes(max(0, length - len(body)))
    for _ in range(draws.randrange(4)):
        if body:
            body[draws.randrange(len(body))] = draws.choice((0, 1, 0x7F, 0x80, 0xFF))
    return _HEAD.pack(number, parameters) + bytes(body)


# --- masks ---------------------------------------------------------------------------------------

_SCHEMA = schema_of({"hidden.weight": (6, 4), "hidden.bias": (6,), "output.weight": (3, 6)})
_UNITS = UnitLayer(
    name="hidden",
    units=6,
    axes=[
        UnitAxis(tensor="hidden.weight", axis=0),
        UnitAxis(tensor="hidden.bias", axis=0),
        UnitAxis(tensor="output.weight", axis=1),
    ],
)
_LAYOUT = Layout(_SCHEMA, [_UNITS])


class _Masked(Section):
    """The settings of a mask, and calls of a device."""

    mask: AnyMasking
    capacity: float
    place: int
    round: int


def _masked(data: bytes) -> Any:
    settings = _Masked.from_json(data)
    if not (0 < settings.capacity <= 1 and 0 <= settings.place < 2**20):
        raise ConfigError("no device is like that")
    if not 1 <= settings.round < 2**32:
        raise ConfigError("no round is like that")
    return settings, GroupMasks(settings.mask, _LAYOUT, settings.capacity, seed=7)


def _verify_mask(found: tuple[_Masked, GroupMasks]) -> None:
    settings, masks = found
    mask = masks.of("a", settings.place, settings.round)
    other = GroupMasks(settings.mask, _LAYOUT, settings.capacity, seed=7)
    same_mask = other.of("a", settings.place, settings.round)
    assert (mask.whole() == same_mask.whole()).all(), "both ends compute the same mask"
    assert mask.size == np.count_nonzero(mask.whole()) <= masks.largest <= _LAYOUT.parameters
    vector = np.arange(1, _LAYOUT.parameters + 1, dtype=np.float32)
    expanded = mask.expand(mask.compact(vector), into=np.zeros_like(vector))
    np.testing.assert_array_equal(expanded, np.where(mask.whole(), vector, 0))
    assert same(validate(_Masked, settings.model_dump(), "a mask"), settings)


TARGETS = (
    Target(
        name="bodies",
        read=split_bodies,
        refusals=(RemoteProtocolError,),
        verify=_verify_bodies,
        seeds=lambda: [with_bodies(b"\x12\x00", [bytes(8), b"", bytes(200)])],
    ),
    Target(
        name="codecs",
        read=_check_body,
        refusals=(RemoteProtocolError,),
        verify=_verify_body,
        seeds=_bodies_of_codecs,
        mutate=_mutate_body,
    ),
    Target(
        name="masks",
        read=_masked,
        refusals=(ConfigError,),
        verify=_verify_mask,
        seeds=lambda: [
            b'{"mask": {"kind": "%b"}, "capacity": 0.5, "place": 1, "round": 2}' % kind
            for kind in (b"tensors", b"blocks", b"width", b"random")
        ],
        mutate=json_mutation(
            "tensors", "blocks", "width", "random", "static", "rotating", "drawn", "schedule",
            "kind", "mask", "download", "slice", "model",
        ),
    ),
)  # fmt: skip

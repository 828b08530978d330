"""Flower's records as bytes and back, bit for bit and in their order.

A `RecordDict` becomes the length of a header, the header as JSON, and the bytes of its arrays.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER_BYTES = struct.Struct("<Q")
_KINDS = {"metrics": MetricRecord, "config": ConfigRecord}


def to_bytes(records: RecordDict) -> bytes:
    """Return the bytes of which `from_bytes` makes equal records."""
    header, blobs = [], []
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            facts = [[k, a.dtype, list(a.shape), a.stype, len(a.data)] for k, a in record.items()]
            blobs += [array.data for array in record.values()]
            header.append([name, "arrays", facts])
        else:
            kind = "metrics" if isinstance(record, MetricRecord) else "config"
            header.append([name, kind, [[k, _plain(value)] for k, value in record.items()]])
    text = json.dumps(header).encode()
    return b"".join([_HEADER_BYTES.pack(len(text)), text, *blobs])


def from_bytes(data: bytes) -> RecordDict:
    """Return the records of which `to_bytes` made the bytes."""
    (length,) = _HEADER_BYTES.unpack_from(data)
    start = _HEADER_BYTES.size + length
    records = RecordDict()
    for name, kind, facts in json.loads(data[_HEADER_BYTES.size : start]):
        if kind == "arrays":
            records[name] = ArrayRecord(dict(_arrays(facts, data, start)))
            start += sum(fact[-1] for fact in facts)
        else:
            records[name] = _KINDS[kind]({key: _value(value) for key, value in facts})
    return records


def _arrays(facts: list[Any], data: bytes, start: int) -> Iterator[tuple[str, Array]]:
    for key, dtype, shape, stype, size in facts:
        yield key, Array(dtype, tuple(shape), stype, data[start : start + size])
        start += size


def _plain(value: Any) -> Any:
    """A value of a record as JSON can have it: bytes become a table."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    return base64.b64decode(plain["base64"]) if isinstance(plain, dict) else plain

"""JSON objects that end with a checksum of themselves, so that one changed bit is noticed.

    {"event":"started","at":1.5,"process":"nursery","sum":"9f0c3f0a6a0de1b7"}

The value of `sum` is the hexadecimal XXH3-64 of the line as it would be without it.
"""

from typing import Any

import orjson
import xxhash

_KEY, _DIGITS = b',"sum":"', 16
_LENGTH = len(_KEY) + _DIGITS + len(b'"}')


def sealed(line: bytes) -> bytes:
    """Return a line of JSON, an object that is not empty, with its checksum."""
    return b'%b%b%b"}' % (line[:-1], _KEY, xxhash.xxh3_64_hexdigest(line).encode())


def is_sealed(line: bytes) -> bool:
    """Whether a line ends as `sealed` writes it. An older version of muster wrote no checksums."""
    return line[-_LENGTH:].startswith(_KEY) and line.endswith(b'"}')


def object_in(line: bytes) -> dict[str, Any] | None:
    """The object of a line, without its checksum; None if the line is not whole, because of a full
    disk or a power cut, or is not as it was written."""
    if is_sealed(line):
        content = line[:-_LENGTH] + b"}"
        if xxhash.xxh3_64_hexdigest(content).encode() != line[-_LENGTH + len(_KEY) : -2]:
            return None
        line = content
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None

"""Reads TOML with bounds. It imports nothing that is slow, so that commands can read a scenario's
text at once."""

import tomllib
from collections.abc import Mapping
from typing import Any

from muster.common.errors import ConfigError

_LEVELS = 50
"""Most levels of nested tables and lists in a file; a scenario has about six."""

_TOO_DEEP = f"expected at most {_LEVELS} levels of tables and lists in each other, found more"
_TOO_LONG = "expected whole numbers of at most 64 bits, found a longer one"


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Args:
        source: where the text comes from, for the message.

    Raises:
        ConfigError: see `require_plain`.
        tomllib.TOMLDecodeError: `text` is not TOML.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(f"{source}: {_TOO_DEEP}") from None
    except ValueError:  # Python reads no whole number of more than 4,300 digits
        raise ConfigError(f"{source}: {_TOO_LONG}") from None
    require_plain(values, source)
    return values


def require_plain(values: Mapping[str, Any], source: str) -> None:
    """Check that a file's values are not nested too deeply, and its whole numbers fit 64 bits.

    Deep nesting would end in a RecursionError, because code that walks through values calls itself
    once per level. TOML does not promise whole numbers of more than 64 bits.

    Raises:
        ConfigError: the values are nested too deeply, or a whole number is too long.
    """
    waiting: list[tuple[int, object]] = [(0, values)]
    while waiting:
        level, value = waiting.pop()
        if level > _LEVELS:
            raise ConfigError(f"{source}: {_TOO_DEEP}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(f"{source}: {_TOO_LONG}")
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list):
            waiting += [(level + 1, inner) for inner in value]

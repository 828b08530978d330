"""Parses the option --vary, and names variants and their folders."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.common.errors import ConfigError
from muster.emulator.scenario.reading import setting_value

_LONGEST_FOLDER = 100
_OPENING, _CLOSING = "[{", "]}"


def parse_vary(options: Sequence[str]) -> dict[str, list[Any]]:
    """Parse options `key=a,b,c` into keys and their values.

    A comma inside brackets, braces or quotes does not separate values.

    Raises:
        ConfigError: an option has no key or no values, or a key is given twice.
    """
    vary: dict[str, list[Any]] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        values = list(_split(text))
        if not equals or not key or "" in values:
            raise ConfigError(
                f"--vary {option}: expected key=value,value, for example training.local_epochs=1,5"
            )
        if key in vary:
            raise ConfigError(
                f"--vary {option}: {key} is varied twice; give all its values at once"
            )
        vary[key] = [setting_value(value) for value in values]
    return vary


def _split(text: str) -> Iterator[str]:
    """The pieces between commas outside of brackets, braces and quotes."""
    depth, quote, piece = 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "," and depth == 0:
            yield piece.strip()
            piece = ""
            continue
        else:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        piece += letter
    yield piece.strip()


def labels_of(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of variants with the same keys, for example "goal=8 selection=uniform(k=5)"."""
    names = _short_names(list(variants[0]))
    return [
        " ".join(f"{names[key]}={value_text(value)}" for key, value in variant.items())
        for variant in variants
    ]


def value_text(value: Any) -> str:
    """A value as text for people, for example `uniform(k=5)` for a table with `kind`."""
    if isinstance(value, Mapping):
        rest = ",".join(f"{key}={value_text(item)}" for key, item in value.items() if key != "kind")
        kind = str(value.get("kind", ""))
        return f"{kind}({rest})" if rest or not kind else kind
    if isinstance(value, list | tuple):
        return f"[{','.join(map(value_text, value))}]"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def folder_names(labels: Sequence[str]) -> list[str]:
    """Turn labels into folder names, and number names that are alike."""
    names = [
        re.sub(r"[^A-Za-z0-9._=]+", "-", label).strip("-.")[:_LONGEST_FOLDER] for label in labels
    ]
    times = Counter(name.lower() for name in names)
    return [
        name if times[name.lower()] == 1 else f"{name}-{number}"
        for number, name in enumerate(names, 1)
    ]


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Map each key to its last part, or to the part before if the last is `kind` or `name`.

    If two short names would be alike, the whole keys are used.
    """
    short = {}
    for key in keys:
        *path, last = re.findall(r"[^.\[\]]+", key)
        short[key] = path[-1] if path and last in ("kind", "name") else last
    times = Counter(short.values())
    return {key: name if times[name] == 1 else key for key, name in short.items()}

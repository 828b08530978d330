"""Reads pickles of plain data without running any code that they contain.

A pickle is a program that may name any function and call it. This reader accepts dicts, lists,
numbers and text alone: it refuses a name before looking it up. Plain data can still be nested
deeply, or contain itself.
"""

import io
import pickle
import pickletools
from typing import NoReturn


def load_plain(content: bytes) -> object:
    """The object of a pickle.

    Raises:
        ValueError: it is not a pickle, or holds something other than plain data.
    """
    try:
        _require_small_memo(content)
        return _PlainUnpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    # A file that is not a pickle, or a damaged one, can raise nearly any exception.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"found the name {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("found a reference to something outside the file")


def _require_small_memo(content: bytes) -> None:
    """Check that a pickle does not ask for a larger table of its objects than it can fill. A pickle
    of six bytes could otherwise take all memory.

    Raises:
        UnpicklingError: it does.
        ValueError: it is not a pickle.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name.endswith("PUT") and int(argument or 0) >= len(content):
            raise pickle.UnpicklingError(f"found object {argument} in {len(content)} bytes")

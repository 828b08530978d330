"""What the ledger records of the software and the hardware that decide the bits of a run."""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("muster-fl", "numpy", "torch", "safetensors", "xxhash")
"""The packages that compute, store or check numbers of a run."""


def package_versions() -> dict[str, str]:
    """The versions of the packages that may decide bits. One that is not installed as a package is
    left out."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def platform_of(fingerprint: Mapping[str, object]) -> dict[str, str]:
    """What decides the bits of training, from a fingerprint, with Python and the machine."""
    facts = {"python": platform.python_version(), "machine": platform.machine()}
    return facts | {name: str(value) for name, value in fingerprint.items() if name != "torch"}

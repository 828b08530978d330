"""FLASH's `speed_distri.json` (Yang et al., WWW 2021; BSD-2-Clause).

`{device: {"down_u": …, "down_sigma": …, "up_u": …, "up_sigma": …}, …}`: mean and standard deviation
of the rates of a phone over Wi-Fi. FLASH divides bytes by 1024 · u (`models/device.py`), so the
unit is KiB/s.
"""

import json
import math
from pathlib import Path

from muster.emulator.fleet.device_lists.contract import (
    DeviceListFormat,
    ImportedDevices,
    ImportOptions,
    numbers_in,
)

_KBITS = 8 * 1.024
"""kbit in a KiB."""

_KEYS = "down_u", "down_sigma", "up_u", "up_sigma"


def _read(path: Path, content: bytes, options: ImportOptions) -> ImportedDevices:
    try:
        devices = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(devices, dict) or not devices:
        raise ValueError(f"{path}: expected FLASH's rates by device, found none")
    down, up, fading = [], [], []
    for name, entry in devices.items():
        found = numbers_in(entry, _KEYS)
        if found is None or not (found[0] and found[2]):
            raise ValueError(
                f"{path}, device {str(name)[:50]!r}: expected {', '.join(_KEYS)} in KiB/s, the "
                f"means above 0; correct or remove the device"
            )
        down_u, down_sigma, up_u, up_sigma = found
        variation = (down_sigma / down_u + up_sigma / up_u) / 2
        down.append(_KBITS * down_u)
        up.append(_KBITS * up_u)
        fading.append(math.sqrt(math.log1p(variation**2)))
    return ImportedDevices(
        "FLASH's speed_distri.json",
        {"down_kbps": down, "up_kbps": up, "fading": fading},
        [
            "rates were read as KiB/s, as FLASH computes with them; there are no round trips",
            "fading = √ln(1 + CV²), where CV is the mean of sigma/u of both directions",
        ],
    )


FORMAT = DeviceListFormat(
    "FLASH's speed_distri.json",
    lambda content: content.lstrip()[:1] == b"{" and b'"down_u"' in content,
    _read,
)

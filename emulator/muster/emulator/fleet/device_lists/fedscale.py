"""FedScale's `client_device_capacity` (Lai et al., ICML 2022; Apache-2.0).

A pickle of `{client: {"computation": ms, "communication": kbit/s}, …}`: milliseconds of inference
for an example, and one rate for both directions. FedScale takes three times the inference for
training (`get_completion_time`), and so does this reader.
"""

from pathlib import Path

from muster.emulator.fleet.device_lists.contract import (
    DeviceListFormat,
    ImportedDevices,
    ImportOptions,
    numbers_in,
)
from muster.emulator.fleet.plain_pickle import load_plain

_TRAINING = 3.0
"""Forward and backward pass, as a multiple of the forward pass."""


def _read(path: Path, content: bytes, options: ImportOptions) -> ImportedDevices:
    try:
        clients = load_plain(content)
    except ValueError as error:
        raise ValueError(
            f"{path}: expected a pickle of only dicts, lists, numbers and text, {error}; no code "
            f"of the file was run"
        ) from None
    if type(clients) is not dict or not clients:
        raise ValueError(
            f"{path}: expected FedScale's devices by client, found {type(clients).__name__}; "
            f"FedScale's benchmark data has them in client_device_capacity"
        )
    speeds, rates = [], []
    for number, entry in enumerate(clients.values(), start=1):
        found = numbers_in(entry, ("computation", "communication"))
        if found is None or not all(found):
            raise ValueError(
                f"{path}, device {number}: expected computation in ms and communication in kbit/s, "
                f"both above 0; correct or remove the device"
            )
        inference_ms, kbps = found
        speeds.append(1000 / (_TRAINING * inference_ms))
        rates.append(kbps)
    return ImportedDevices(
        "FedScale's client_device_capacity",
        {"down_kbps": rates, "up_kbps": rates, "examples_per_s": speeds},
        [
            "FedScale has one rate for both directions, and no round trips",
            "examples_per_s = 1000 / (3 · computation), as FedScale trains; its model is not ours",
        ],
    )


FORMAT = DeviceListFormat(
    "FedScale's client_device_capacity, a pickle",
    lambda content: content[:1] in (b"\x80", b"(", b"}"),
    _read,
)

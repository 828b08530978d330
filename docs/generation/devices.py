"""The presets of devices, networks and links."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from generation.markdown import table, value_text
from muster.client.life.connectivity import NETWORKS
from muster.client.life.device_settings import DEVICES, DeviceSettings, drop_out_of
from muster.common.config import Section
from muster.emulator.links.settings import LINKS
from muster.emulator.scenario.settings import LIVES


def profiles() -> list[str]:
    """What the device profiles preset, a column for each."""
    bases = {name: preset for name, preset in DEVICES.items() if preset.source.year is None}
    devices = {name: DeviceSettings.model_validate({"profile": name}) for name in bases}
    keys = dict.fromkeys(key for preset in bases.values() for key in _leaves(preset.values))
    rows = [
        (f"`device.{key}`", *(_preset(device, key) for device in devices.values())) for key in keys
    ]
    rows.append(("`participation.drop_out`", *(f"`{drop_out_of(name)}`" for name in devices)))
    return table(("key", *devices), rows)


def _leaves(preset: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in preset.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _preset(device: DeviceSettings, key: str) -> str:
    """A setting of a profile; a dash where it is absent, or where nothing looks at it."""
    mobile, chargeable = device.connectivity.kind == "mobile", device.battery is not None
    if (".wifi" in key and not mobile) or (key.startswith("charging") and not chargeable):
        return "–"
    value: Any = device
    for part in key.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Section):
        return "defaults"
    return "–" if value is None else value_text(value)


def networks() -> list[str]:
    """The classes of connectivity."""
    rows = [
        (n.name, "yes" if n.metered else "no", *(_mbps(rate) for rate in (n.down_mbps, n.up_mbps)))
        for n in NETWORKS
    ]
    return table(("network", "metered", "down, Mbit/s", "up, Mbit/s"), rows)


def _mbps(rate: float) -> str:
    return "takes no time" if math.isinf(rate) else f"{rate:g}"


def links() -> list[str]:
    """What the profiles of links preset, a row for each."""
    keys = list(dict.fromkeys(key for preset in LINKS.values() for key in preset.values))
    rows = [
        (f"`{name}`", *(str(preset.values.get(key, "–")) for key in keys), preset.provenance)
        for name, preset in LINKS.items()
    ]
    return table(("profile", *(f"`{key}`" for key in keys), "source"), rows)


def lives() -> list[str]:
    """What the lives preset."""
    rows = [
        (f"`{name}`", *(_settings(preset.values.get(key)) for key in _LIFE), preset.provenance)
        for name, preset in LIVES.items()
    ]
    return table(("life", *(f"`{key}`" for key in _LIFE), "source"), rows)


_LIFE = "availability", "participation"


def _settings(values: Mapping[str, Any] | None) -> str:
    return (
        "–" if values is None else ", ".join(f"`{k} = {value_text(v)}`" for k, v in values.items())
    )


def models() -> list[str]:
    """The profiles of devices that were measured."""
    rows = [
        (f"`{name}`", preset.about, f"{preset.values['examples_per_s']:g}", preset.base)
        for name, preset in DEVICES.items()
        if preset.source.year is not None
    ]
    return table(("profile", "device", "`device.examples_per_s`", "otherwise like"), rows)

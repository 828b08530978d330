"""What a device is: battery, charging habits, use, connectivity, local time, compute speed.

The settings and their presets; `surroundings` and `battery` compute from them. The models are
simple on purpose, and every constant can be set: published power models of phones are off by up to
ten times (arXiv:2605.27601), so no watt is claimed to be right.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from muster.common.bounds import LogDeviation, LongTime
from muster.common.config import Section
from muster.common.distributions import AnyNumber, UniformDistribution

Share = Annotated[float, Field(ge=0, le=1)]
Current = Annotated[float, Field(ge=0, le=1e6)]
Load = Annotated[float, Field(ge=0.01, le=1e6)]
Hours = Annotated[float, Field(ge=0, le=24)]


class Battery(Section):
    """A battery, by the balance of currents (Android's power-profile form: mA × time).

    Defaults are of a 4410 mAh phone with a Tensor-class chip, whose power profile is public, where
    nothing else is said.
    """

    capacity_mah: Annotated[float, Field(ge=1, le=1e9)] = 4400.0
    """Of the full battery."""

    initial: AnyNumber = UniformDistribution(kind="uniform", low=0.1, high=1.0)
    """Charge at scenario time 0, as a share; uniform from 0.1 to 1 as in Flower's battery-aware
    simulator (nozzolillo01/battery-aware-federated-learning). Cut to [0, 1]."""

    idle_ma: Load = 20.0
    """Drawn while nobody uses the device: between suspended (10 mA) and idle (28.6 mA)."""

    use_ma: Load = 450.0
    """Drawn while somebody uses it: screen at half brightness and a little computing."""

    training_ma: Current = 400.0
    """Drawn by training besides: four little and two middle cores (408 mA); all eight: 900."""

    wifi_rx_ma: Current = 98.0
    """Drawn by receiving over Wi-Fi."""

    wifi_tx_ma: Current = 470.0
    """Drawn by sending over Wi-Fi."""

    cellular_rx_ma: Current = 145.0
    """Drawn by receiving over the modem."""

    cellular_tx_ma: Current = 292.0
    """Drawn by sending over the modem, at a middling signal."""

    charger_ma: Load = 1500.0
    """Of the charger: a dedicated USB port (BC 1.2 DCP)."""

    taper_from: Share = 0.8
    """Charge from which the charging current falls. Assumption."""

    taper: Annotated[float, Field(ge=0.01, le=100)] = 0.12
    """τ of the falling current, I = I₀ exp(−(charge − taper_from)/τ). Assumption."""

    revives_at: Share = 0.05
    """Charge at which a device that ran out comes back. Assumption."""


class Charging(Section):
    """When people charge: at night, now and then by day, and when they must.

    The shape is that of Ferreira, Dey, Kostakos (Pervasive 2011) as commonly quoted; its curves
    could not be read, so every number is an assumption.
    """

    night_probability: Share = 0.85
    """Of plugging in for a night. Assumption."""

    night_start_h: Annotated[float, Field(ge=12, lt=36)] = 23.0
    """Local hour at which that happens, mean; 25 is one o'clock. Assumption."""

    night_start_sd_h: Hours = 1.2
    """Its standard deviation. Assumption."""

    night_hours: Annotated[float, Field(ge=0, le=12)] = 7.0
    """How long it stays plugged in, mean; never more than 12. Assumption."""

    night_hours_sd: Hours = 1.2
    """Its standard deviation. Assumption."""

    top_ups_per_day: Annotated[float, Field(ge=0, le=3)] = 0.8
    """Mean of a Poisson number, begun from 8 to 22 local time; never more than 6. Assumption."""

    top_up_s: LongTime = 1500.0
    """How long one lasts, median of a log-normal. Assumption."""

    top_up_sigma: LogDeviation = 0.8
    """σ of that log-normal. Assumption."""

    forced_below: Share = 0.2
    """Charge below which people look for a charger. Assumption."""

    forced_probability: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Of finding one within an hour. Assumption."""


class Use(Section):
    """When nobody uses the device: drawn for every spell, by local time."""

    idle_at_night: Share = 0.97
    """Probability of being idle in a spell from 23 to 7 local time. Assumption."""

    idle_by_day: Share = 0.7
    """Likewise in the other hours. Assumption."""

    spell_s: Annotated[float, Field(ge=60, le=1e9)] = 900.0
    """How long a draw holds. Assumption."""


class Connectivity(Section):
    """How a device is connected: drawn every hour, by local time."""

    kind: Literal["fixed", "mobile"] = "fixed"
    """fixed: by cable, unmetered. mobile: on Wi-Fi or else on the mobile network."""

    wifi_at_home: Share = 0.95
    """mobile: probability of Wi-Fi in an hour from 19 to 8 local time. Assumption."""

    wifi_away: Share = 0.4
    """mobile: likewise in the other hours. Assumption."""

    metered: bool | None = None
    """Whether traffic costs money; absent: on the mobile network only."""


_PHONE: dict[str, Any] = {
    "battery": {},
    "charging": {},
    "use": {},
    "connectivity": {"kind": "mobile"},
    "examples_per_s": 400.0,
}
_TABLET: dict[str, Any] = {
    "battery": {"capacity_mah": 7600.0, "use_ma": 700.0, "charger_ma": 2000.0},
    "charging": {"night_probability": 0.6, "top_ups_per_day": 0.4},
    "use": {"idle_by_day": 0.85},
    "connectivity": {"kind": "mobile", "wifi_at_home": 0.98, "wifi_away": 0.8},
    "examples_per_s": 600.0,
}
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "phone": _PHONE,
    "tablet": _TABLET,
    "gateway": {"examples_per_s": 200.0},
    "silo": {"examples_per_s": 20000.0},
    "always-on": {},
}
"""What a profile presets; all of it can be set beside it. The speeds, and what makes a tablet
differ from a phone, are assumptions. A device without a battery runs on mains."""

DROP_OUT: Mapping[str, float] = {"phone": 0.08, "tablet": 0.08}
"""Drop-out of a round by profile: the middle of the 6 to 10 % of Bonawitz et al. (MLSys 2019,
section 9); 0 for devices on mains."""


class DeviceSettings(Section):
    """What the devices of a group are."""

    profile: Literal["phone", "tablet", "gateway", "silo", "always-on"] = "always-on"
    """Presets of all that follows. always-on: a device that has no life and obeys."""

    capacity: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of a model that it can train (masks)."""

    examples_per_s: AnyNumber | None = None
    """Modelled speed of training, a number or a distribution over the devices, of which what is
    below 0.001 counts as that. Absent: as fast as the host, which counts as 0 s."""

    torch_device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Where they train. auto: on a GPU where the machine has one. Devices on a GPU are spawned,
    not forked, and take turns on the machine's GPUs."""

    time_zone: AnyNumber = 0.0
    """Hours that local time is ahead of UTC, a number or a distribution over the devices."""

    battery: Battery | None = None
    """Absent: it runs on mains, is always charging and full."""

    charging: Charging = Charging()
    """When it is plugged in; matters where there is a battery."""

    use: Use | None = None
    """When somebody uses it. Absent: never, it is always idle."""

    connectivity: Connectivity = Connectivity()
    """How it is connected."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        """Put the profile's presets under what is given."""
        if not isinstance(values, Mapping):
            return values
        presets = PROFILES.get(str(values.get("profile", "always-on")), {})
        return _merged(presets, values)

    @field_validator("examples_per_s")
    @classmethod
    def _is_fast_enough(cls, speed: AnyNumber | None) -> AnyNumber | None:
        if isinstance(speed, float) and speed <= 0:
            raise ValueError(f"expected a speed > 0, found {speed:g}")
        return speed

    @property
    def lives(self) -> bool:
        """Whether anything about it ever changes."""
        mobile = self.connectivity.kind == "mobile"
        return self.battery is not None or self.use is not None or mobile


def _merged(under: Mapping[str, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], Mapping) and isinstance(over[key], Mapping):
            merged[key] = _merged(under[key], over[key])
    return merged

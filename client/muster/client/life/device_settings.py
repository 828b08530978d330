"""Settings of a device: battery, charging habits, use, connectivity, local time, compute speed.

The module has the settings and their presets; `surroundings` and `battery` compute from them. The
models are simple on purpose, and every constant can be set. Published power models of phones are
off by up to ten times (arXiv:2605.27601), so no watt is claimed to be right.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializeAsAny, field_validator, model_validator

from muster.client.availability.traces import Assign
from muster.client.life.connectivity import Connectivity, Share
from muster.client.life.state_logs import state_logs
from muster.common.bounds import LogDeviation, LongTime
from muster.common.catalogue import read_catalogue, require_known
from muster.common.config import Section
from muster.common.distributions import AnyNumber, Distribution, UniformDistribution
from muster.common.per_device import ANY, PerDevice

Current = Annotated[float, Field(ge=0, le=1e6)]
Load = Annotated[float, Field(ge=0.01, le=1e6)]
CAPACITY_MAH = PerDevice(1, 1e9)
Hours = Annotated[float, Field(ge=0, le=24)]


class Battery(Section):
    """A battery, modelled as a balance of currents (Android's power-profile form: mA × time).

    Unless a key says otherwise, defaults are from the public power profile of a 4410 mAh phone with
    a Tensor-class chip.
    """

    capacity_mah: Annotated[
        Annotated[float, *CAPACITY_MAH.number] | SerializeAsAny[Distribution], *CAPACITY_MAH.marks
    ] = 4400.0
    """Capacity of the full battery: a number, or a distribution over the devices."""

    initial: AnyNumber = UniformDistribution(kind="uniform", low=0.1, high=1.0)
    """Charge at scenario time 0, as a share, cut to [0, 1]. The default is uniform from 0.1 to 1 as
    in Flower's battery-aware simulator (nozzolillo01/battery-aware-federated-learning)."""

    idle_ma: Load = 20.0
    """Current while the device is idle; the default is between the currents when suspended
    (10 mA) and idle (28.6 mA)."""

    use_ma: Load = 450.0
    """Current while somebody uses the device; the default is for a screen at half brightness and a
    little computing."""

    training_ma: Current = 400.0
    """Additional current of training; the default is for four little and two middle cores (408
    mA). All eight cores would take 900 mA."""

    wifi_rx_ma: Current = 98.0
    """Additional current of receiving over Wi-Fi."""

    wifi_tx_ma: Current = 470.0
    """Additional current of sending over Wi-Fi."""

    cellular_rx_ma: Current = 145.0
    """Additional current of receiving over the modem."""

    cellular_tx_ma: Current = 292.0
    """Additional current of sending over the modem, at a signal of middling strength."""

    charger_ma: Load = 1500.0
    """Current of the charger; the default is that of a dedicated USB port (BC 1.2 DCP)."""

    taper_from: Share = 0.8
    """Charge, as a share, above which the charging current falls. Assumption."""

    taper: Annotated[float, Field(ge=0.01, le=100)] = 0.12
    """τ of the falling current, I = I₀ exp(−(charge − taper_from)/τ). Assumption."""

    revives_at: Share = 0.05
    """Charge, as a share, at which a device whose battery ran out comes back. Assumption."""


Watts = Annotated[float, Field(ge=0, le=1e5)]


class Power(Section):
    """What a device on mains takes, for the energy of a run ([energy.md](energy.md))."""

    idle_w: Watts
    """Watts of the device that is on and does nothing."""

    training_w: Watts
    """Additional watts of training."""

    receiving_w: Watts = 0.0
    """Additional watts of receiving. The default is an assumption: little beside `idle_w`."""

    sending_w: Watts = 0.0
    """Additional watts of sending. The default is an assumption: little beside `idle_w`."""


class Charging(Section):
    """When people charge a device: at night, now and then by day, and when the battery is low.

    The shape is that of Ferreira, Dey, Kostakos (Pervasive 2011) as commonly quoted. The curves of
    the paper could not be read, so every number is an assumption.
    """

    night_probability: Share = 0.85
    """Probability that a device is plugged in for a night. Assumption."""

    night_start_h: Annotated[float, Field(ge=12, lt=36)] = 23.0
    """Mean local hour of plugging in for the night; 25 is one o'clock. Assumption."""

    night_start_sd_h: Hours = 1.2
    """Standard deviation of `night_start_h`. Assumption."""

    night_hours: Annotated[float, Field(ge=0, le=12)] = 7.0
    """Mean number of hours plugged in at night; a device is never plugged in for more than 12.
    Assumption."""

    night_hours_sd: Hours = 1.2
    """Standard deviation of `night_hours`. Assumption."""

    top_ups_per_day: Annotated[float, Field(ge=0, le=3)] = 0.8
    """Mean of the Poisson number of top-ups in a day. They begin between 8 and 22 local time, and
    there are never more than 6. Assumption."""

    top_up_s: LongTime = 1500.0
    """Median duration of a top-up; the duration is log-normal. Assumption."""

    top_up_sigma: LogDeviation = 0.8
    """σ of that log-normal. Assumption."""

    forced_below: Share = 0.2
    """Charge, as a share, below which people look for a charger. Assumption."""

    forced_probability: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Probability of finding a charger within an hour. Assumption."""


class Use(Section):
    """When a device is idle, because nobody uses it: drawn for every spell, by local time."""

    idle_at_night: Share = 0.97
    """Probability of being idle in a spell from 23 to 7 local time. Assumption."""

    idle_by_day: Share = 0.7
    """Probability of being idle in a spell in the other hours. Assumption."""

    spell_s: Annotated[float, Field(ge=60, le=1e9)] = 900.0
    """Length of a spell, for which a draw holds. Assumption."""


class RecordedStates(Section):
    """What devices were recorded to do: FLASH's logs of charging, screen and networks."""

    file: str
    """Path of the logs: JSON by device with `messages`, a line for each event. It may be gzip."""

    assign: Assign = "position"
    """Which log a device replays if none has its name: position: the one at its position in the
    group, modulo the number of logs. random: one that it draws, for samples of many logs."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        try:
            state_logs(self.file, Path(self.file).stat().st_mtime_ns)
        except OSError as error:
            raise ValueError(f"{self.file} cannot be read: {error.strerror}") from None
        return self


DEVICES = read_catalogue(Path(__file__).with_name("devices.toml"))
"""The profiles by name. A device without a battery runs on mains."""

_DROP_OUT = {"phone": 0.08, "tablet": 0.08}


def drop_out_of(profile: str) -> float:
    """Probability of dropping out of a round: for phones and tablets, the middle of the 6 to 10 %
    of Bonawitz et al. (MLSys 2019, section 9); 0 for devices that run on mains."""
    return _DROP_OUT.get(DEVICES[profile].base, 0.0)


class DeviceSettings(Section):
    """The properties of the devices of a group."""

    profile: Annotated[
        str,
        AfterValidator(lambda name: require_known(name, [*DEVICES], "devices")),
        Field(max_length=100),
    ] = "always-on"
    """Presets for the other keys of this table, by name ([profiles](#device-profiles)): phone,
    tablet, gateway, silo, always-on, or a model such as pixel-6. always-on: a device whose state
    never changes and that accepts every call."""

    capacity: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of the model's parameters that a device trains, if its group has a mask
    (`groups.mask`). Without a mask it is recorded and has no other effect."""

    examples_per_s: AnyNumber | None = None
    """Modelled speed of training: a number, or a distribution over the devices, whose values below
    0.001 count as 0.001. Absent: as fast as the host, and modelled training takes 0 s."""

    speed_sigma: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of a log-normal factor with median 1 of the seconds of training, drawn for each device and
    each `clock.round_s`: what heat and other programs change from round to round. Needs
    `examples_per_s`."""

    torch_device: Literal["cpu", "cuda", "auto"] = "cpu"
    """The processor that trains. auto: a GPU if the machine has one; on a cluster, if a node with
    the labels of the group has one. Devices on a GPU are spawned, not forked, and are distributed
    over the GPUs of their machine, at most `launch.devices_per_gpu` processes on each."""

    time_zone: AnyNumber = 0.0
    """Hours by which local time is ahead of UTC: a number, or a distribution over the devices."""

    battery: Battery | None = None
    """The battery. Absent: the device runs on mains, so it is always charging and full."""

    power: Power | None = None
    """The power of a device that runs on mains. It has an effect only with `[energy]`."""

    charging: Charging = Charging()
    """When the device is plugged in; matters only with a battery."""

    use: Use | None = None
    """When somebody uses the device. Absent: never, so it is always idle."""

    connectivity: Connectivity = Connectivity()
    """How the device is connected."""

    recorded: RecordedStates | None = None
    """Recorded charging, use and network, which replace `charging`, `use` and the network of
    `connectivity`. The device needs a battery, whose charge still follows the model."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        """Add the profile's presets for keys that are not given."""
        if not isinstance(values, Mapping):
            return values
        preset = DEVICES.get(str(values.get("profile", "always-on")))
        return values if preset is None else _merged(preset.values, values)

    @model_validator(mode="after")
    def _has_what_was_recorded(self) -> Self:
        if self.recorded is not None and self.battery is None:
            raise ValueError(
                'recorded: expected a device with a battery, as profile = "phone", found one that '
                "runs on mains"
            )
        return self

    @model_validator(mode="after")
    def _has_one_power(self) -> Self:
        if self.power is not None and self.battery is not None:
            raise ValueError(
                "power: expected a device on mains, found one with a battery, whose currents say "
                "what it takes; leave power out"
            )
        return self

    @model_validator(mode="after")
    def _has_a_speed(self) -> Self:
        if self.speed_sigma and self.examples_per_s is None:
            raise ValueError(
                f"speed_sigma: expected a device with examples_per_s, because training takes no "
                f"modelled time otherwise, found {self.speed_sigma:g} without it"
            )
        return self

    @field_validator("examples_per_s")
    @classmethod
    def _is_fast_enough(cls, speed: AnyNumber | None) -> AnyNumber | None:
        if isinstance(speed, float) and speed <= 0:
            raise ValueError(f"expected a speed > 0, found {speed:g}")
        return speed

    def looked_up(self) -> dict[str, tuple[Distribution, PerDevice]]:
        """The settings whose values are looked up for each device, by their keys, each with what
        its values can be."""
        settings: dict[str, tuple[object, PerDevice]] = {
            "examples_per_s": (self.examples_per_s, ANY),
            "time_zone": (self.time_zone, ANY),
        }
        if (battery := self.battery) is not None:
            settings["battery.initial"] = battery.initial, ANY
            settings["battery.capacity_mah"] = battery.capacity_mah, CAPACITY_MAH
        return {
            key: (setting, kind)
            for key, (setting, kind) in settings.items()
            if isinstance(setting, Distribution) and setting.looks_up
        }

    @property
    def lives(self) -> bool:
        """Whether the state of such a device ever changes."""
        mobile = self.connectivity.kind == "mobile"
        return self.battery is not None or self.use is not None or mobile


def _merged(under: Mapping[str, Any], over: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], Mapping) and isinstance(over[key], Mapping):
            merged[key] = _merged(under[key], over[key])
    return merged

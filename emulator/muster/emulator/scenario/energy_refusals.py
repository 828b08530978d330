"""Scenarios whose energy cannot be computed."""

from collections.abc import Iterator

from muster.emulator.scenario.settings import ScenarioSettings


def energy_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield what is missing for the energy of a scenario, one sentence each; nothing without
    `[energy]`."""
    if scenario.energy is None:
        return
    if scenario.life is not None:
        yield (
            "energy: a scenario that is played from a life record has no speeds and links, from "
            "which energy is computed; take the energy of the recorded run"
        )
    for number, group in enumerate(scenario.groups):
        where, device = f"groups[{number}]", group.device
        if device.examples_per_s is None:
            yield (
                f"{where}.device.examples_per_s: energy is power × modelled time, but training "
                f"has none; expected a speed, for example 100"
            )
        if device.battery is None and device.power is None:
            yield (
                f"{where}.device.power: the devices run on mains, and nothing says what they take; "
                f"expected for example power = {{ idle_w = 2.2, training_w = 3.2 }}"
            )
        if group.participation.rational is not None:
            yield (
                f"{where}.participation.rational: such devices also train when they decline, "
                f"which the energy would miss; expected none with [energy]"
            )

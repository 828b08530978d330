"""The masks of a scenario's groups, for its model."""

from collections.abc import Mapping
from typing import Any

from muster.common.errors import ConfigError
from muster.common.masks import GroupMasks, Layout, UnitLayer
from muster.common.tensors import Schema, TensorSpec
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.scenario import Scenario


def layout_of(prepared: Mapping[str, Any]) -> Layout:
    """The layout of the model that a nursery has prepared.

    Args:
        prepared: `schema` and `units` of the task, as the nursery reported them.
    """
    specs = [
        TensorSpec(each["name"], tuple(each["shape"]), each.get("counted", False))
        for each in prepared["schema"]
    ]
    return Layout(
        Schema(tuple(specs), prepared.get("frozen", "")),
        [UnitLayer(**layer) for layer in prepared.get("units", ())],
    )


def check_masks(scenario: Scenario, layout: Layout) -> None:
    """Check that every group's mask fits the model, and secure sums.

    Raises:
        ConfigError: one does not.
    """
    masks = masks_of(scenario, layout)
    if scenario.server.secure is not None and masks:
        _require_company(scenario, masks)


def _require_company(scenario: Scenario, masks: Mapping[str, GroupMasks]) -> None:
    """Check that every part of the model is trained by as many devices as a secure sum needs.

    Raises:
        ConfigError: one is not, in the first round with all devices.
    """
    parts: dict[bytes, list[str]] = {}
    for place, (client, group) in enumerate(names_of(scenario.groups)):
        part = masks[group].of(client, place, 1).part if group in masks else b""
        parts.setdefault(part, []).append(client)
    least = scenario.server.minimum
    clients = min(parts.values(), key=len)
    if len(clients) < least:
        raise ConfigError(
            f"server.secure: {len(parts):,} parts of the model are trained, each of which has a "
            f"secure sum of its own. The one of {clients[0]} is trained by {len(clients):,} of "
            f"{scenario.devices:,} devices; expected at least server.minimum = {least} for every "
            f"part. Take more devices, a capacity that cuts the model into fewer parts, or masks "
            f"of the kind 'width', which all devices of a group have in common"
        )


def masks_of(scenario: Scenario, layout: Layout) -> dict[str, GroupMasks]:
    """The masks of the groups whose devices train parts of the model, by name.

    Raises:
        ConfigError: a mask does not fit the model.
    """
    found = {}
    for number, group in enumerate(scenario.groups):
        if group.mask is None:
            continue
        try:
            found[group.name] = GroupMasks(group.mask, layout, group.device.capacity, scenario.seed)
        except ConfigError as error:
            raise ConfigError(f"groups[{number}].mask: {error}") from None
    return found

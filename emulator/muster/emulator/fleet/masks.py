"""The masks of a scenario's groups, for its model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

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
    members_of_sums(scenario, masks_of(scenario, layout))


class Member(NamedTuple):
    """A device of a secure sum, and its group."""

    client: str
    group: str


def members_of_sums(scenario: Scenario, masks: Mapping[str, GroupMasks]) -> list[list[Member]]:
    """The devices of each secure sum of a round with all devices: those that train the same part of
    the model. Without secure sums there is none.

    Raises:
        ConfigError: a part is trained by fewer devices than a secure sum needs.
    """
    if scenario.server.secure is None:
        return []
    parts: dict[bytes, list[Member]] = {}
    for place, (client, group) in enumerate(names_of(scenario.groups)):
        part = masks[group].of(client, place, 1).part if group in masks else b""
        parts.setdefault(part, []).append(Member(client, group))
    least = scenario.server.minimum
    fewest = min(parts.values(), key=len)
    if masks and len(fewest) < least:
        raise ConfigError(
            f"server.secure: {len(parts):,} parts of the model are trained, each of which has a "
            f"secure sum of its own. The one of {fewest[0].client} is trained by "
            f"{len(fewest):,} of {scenario.devices:,} devices; expected at least "
            f"server.minimum = {least} for every part. Take more devices, a capacity that cuts the "
            f"model into fewer parts, or masks of the kind 'width', which all devices of a group "
            f"have in common"
        )
    return list(parts.values())


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

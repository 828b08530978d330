"""The masks of a scenario's groups, for its model."""

from collections.abc import Mapping
from typing import Any

from muster.common.errors import ConfigError
from muster.common.masks import GroupMasks, Layout, UnitLayer
from muster.common.tensors import Schema, TensorSpec
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
    """Check that every group's mask fits the model.

    Raises:
        ConfigError: one does not.
    """
    masks_of(scenario, layout)


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

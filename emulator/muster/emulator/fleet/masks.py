"""The masks of a scenario's groups, for its model."""

from collections.abc import Mapping
from typing import Any

from muster.common.errors import ConfigError
from muster.common.masks import GroupMasks, Layout, UnitLayer
from muster.common.tensors import schema_of
from muster.emulator.scenario.scenario import Scenario


def layout_of(prepared: Mapping[str, Any]) -> Layout:
    """The layout of the model that a nursery has prepared.

    Args:
        prepared: `schema` and `units` of the task, as the nursery reported them.
    """
    tensors = {tensor["name"]: tensor["shape"] for tensor in prepared["schema"]}
    return Layout(schema_of(tensors), [UnitLayer(**layer) for layer in prepared.get("units", ())])


def check_masks(scenario: Scenario, layout: Layout) -> None:
    """Check that every group's mask fits the model.

    Raises:
        ConfigError: one does not.
    """
    largest_masks(scenario, layout)


def largest_masks(scenario: Scenario, layout: Layout) -> dict[str, int]:
    """The largest number of coordinates of a mask, by the names of the groups that have masks.

    Raises:
        ConfigError: a mask does not fit the model.
    """
    found = {}
    for number, group in enumerate(scenario.groups):
        if group.mask is None:
            continue
        try:
            masks = GroupMasks(group.mask, layout, group.device.capacity, scenario.seed)
        except ConfigError as error:
            raise ConfigError(f"groups[{number}].mask: {error}") from None
        found[group.name] = masks.largest
    return found

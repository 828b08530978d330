import importlib.metadata
import re

import pytest

from muster.common.plugins import Registry
from muster.emulator.faults.registry import FAULTS
from muster.server.aggregators import AGGREGATORS
from muster.server.testing import PlusOne


class Point:
    """An entry point of an installed package."""

    name = "plus-one"
    module = "muster.server.testing"

    def load(self) -> object:
        return PlusOne


def test_an_installed_package_adds_its_plug_ins_by_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def entry_points(group: str, name: str | None = None) -> list[Point]:
        return [Point()] if group == "muster.aggregators" and name in (None, "plus-one") else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    rule = AGGREGATORS.parse({"kind": "plus-one", "extra": 3.0})
    assert rule == PlusOne(kind="plus-one", extra=3.0)
    assert "plus-one" in AGGREGATORS.names()


def test_a_registry_without_a_group_of_that_name_finds_only_what_it_holds() -> None:
    empty: Registry[PlusOne] = Registry("rule", "muster.nothing", {"one": PlusOne})
    assert empty.names() == {"one"}
    with pytest.raises(ValueError, match="there is no rule called 'two'; there are: one"):
        empty.find("two")


def test_a_registry_names_the_closest_name() -> None:
    rules = Registry("rule", "muster.nothing", {"median": PlusOne})
    with pytest.raises(ValueError, match=r"called 'medain' \(did you mean 'median'\?\); there are"):
        rules.find("medain")


def test_a_class_of_another_sort_is_no_fault() -> None:
    expected = (
        "'muster.server.testing:PlusOne' is not a fault; derive its class from "
        "muster.client.faults.contract.UpdateFault or "
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        FAULTS.find("muster.server.testing:PlusOne")

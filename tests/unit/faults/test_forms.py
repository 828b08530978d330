"""The form of a fault is computed from its class."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.faults.catalogue import INJECTED
from muster.emulator.faults.forms import fault_forms
from muster.emulator.faults.settings import ScheduledFault

FORMS = {form["kind"]: form for form in fault_forms()}


def field(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in FORMS[kind]["fields"] if each["name"] == name)


def test_every_fault_that_can_be_injected_has_a_sentence_and_all_its_settings() -> None:
    assert FORMS.keys() == INJECTED.keys()
    for kind, form in FORMS.items():
        assert form["about"].endswith("."), kind
        assert form["about"] in " ".join((inspect.getdoc(INJECTED[kind]) or "").split())
        names = [name for name in INJECTED[kind].model_fields if name != "kind"]
        assert [each["name"] for each in form["fields"]] == names
        assert all(each["about"] for each in form["fields"]), kind
        assert set(form["roles"]) == set(INJECTED[kind].roles)
        assert form["lasts"] is INJECTED[kind].lasts


def test_settings_have_types_units_bounds_and_defaults() -> None:
    down = field("flap", "down_s")
    assert (down["type"], down["unit"], down["default"]) == ("number", "s", "1")
    assert (down["least"], down["most"]) == (0.01, 1e6)
    size = field("limit-bytes", "bytes")
    assert (size["type"], size["unit"], size["default"]) == ("whole number", "", "100000")
    way = field("partition", "way")
    assert (way["type"], way["default"]) == ("choice", "both")
    assert way["choices"] == ("both", "up", "down")
    assert (field("flap", "silent")["type"], field("flap", "silent")["default"]) == (
        "switch", "false",
    )  # fmt: skip
    rtt = field("delay", "rtt")
    assert (rtt["type"], rtt["default"], rtt["example"]) == ("quantity", "200 ms", "70 ms")
    assert field("memory-limit", "mib")["default"] is None
    assert (field("memory-limit", "mib")["unit"], field("churn", "share_percent")["unit"]) == (
        "MiB", "%",
    )  # fmt: skip


@pytest.mark.parametrize("kind", sorted(INJECTED))
def test_the_defaults_of_a_form_are_accepted_as_settings(kind: str) -> None:
    read: dict[str, Callable[[str], Any]] = {
        "switch": lambda text: text == "true",
        "number": float,
        "whole number": int,
    }
    given = {
        each["name"]: read.get(each["type"], str)(each["default"])
        for each in FORMS[kind]["fields"]
        if each["default"] is not None
    }
    if kind == "memory-limit":
        given["mib"] = 512.0
    role = min(INJECTED[kind].roles)
    values = {"do": kind, "when": {"round": 1}, "target": {"role": role}, **given}
    do = validate(ScheduledFault, values, "the fault").do
    required = {"mib": 512.0} if "mib" in given else {}
    assert do == INJECTED[kind].model_validate({"kind": kind, **required})


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("degrade", "facto", "did you mean 'factor'? the settings of degrade are: factor"),
        ("limit-bytes", "x", "unknown key; the settings of limit-bytes are: bytes, way, then"),
        (
            "pause",
            "signal",
            "signal: unknown key; pause has none; every fault may have name, target,",
        ),
        ("pause", "for_roundz", "did you mean 'for_rounds'? pause has none; every"),
        ("slow", "x", "the settings of slow are: factor"),
    ],
)
def test_a_refusal_names_the_settings_of_the_fault(kind: str, key: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate(ScheduledFault, {"do": kind, "when": {"round": 1}, key: 1}, "the fault")
    assert said in str(refused.value)

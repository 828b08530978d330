"""Catalogues of presets: every number has a source, or is called an assumption."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from muster.client.life.device_settings import DEVICES, DeviceSettings
from muster.client.life.settings import Life
from muster.common.catalogue import ASSUMPTION, Preset, read_catalogue
from muster.common.errors import ConfigError
from muster.emulator.launch.docker.container_limits import device_limits
from muster.emulator.links.settings import LINKS, LinkSettings
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import LIVES

ALL = {"links": LINKS, "devices": DEVICES, "lives": LIVES}


@pytest.mark.parametrize("presets", ALL.values(), ids=ALL)
def test_every_preset_has_a_source_with_year_and_licence_or_is_an_assumption(
    presets: Mapping[str, Preset],
) -> None:
    for preset in presets.values():
        for source in (preset.source, *preset.others.values()):
            known = source.year is not None and source.licence is not None
            assert known or source.what == ASSUMPTION
        keys = {key for value in preset.values.values() if isinstance(value, dict) for key in value}
        assert set(preset.assumed) | preset.others.keys() <= keys | preset.values.keys()


def test_every_link_and_every_device_can_be_chosen() -> None:
    for name, link in LINKS.items():
        assert LinkSettings.model_validate({"profile": name}).model_fields_set >= link.values.keys()
    for name in DEVICES:
        device = DeviceSettings.model_validate({"profile": name})
        assert Life(group="a", size=1, device=device, step_s=60).drop_out in (0.0, 0.08)
        assert device_limits(name).memory_bytes > 0


def test_a_model_is_a_phone_with_another_processor() -> None:
    phone, old = (DeviceSettings.model_validate({"profile": n}) for n in ("phone", "redmi-5a"))
    assert old.examples_per_s == 63.5
    same = {"profile": "phone", "examples_per_s": phone.examples_per_s}
    assert old.model_copy(update=same) == phone
    assert DeviceSettings.model_validate({"profile": "pixel-6"}).examples_per_s == 400.0


def scenario(folder: Path, **group: Any) -> Scenario:
    values = {"name": "life", "task": "linear", "server": {"rounds": 1}}
    (folder / "a.toml").write_text(
        tomli_w.dumps({**values, "groups": [{"name": "a", "count": 2, **group}]})
    )
    return read_scenario(folder / "a.toml")


def test_a_life_presets_availability_and_participation(tmp_path: Path) -> None:
    read = scenario(tmp_path, life="production", participation={"drop_out": 0.5})
    [group] = read.groups
    assert group.availability.kind == "diurnal"
    assert group.participation.require == ["charging", "unmetered", "idle"]
    assert group.participation.drop_out == 0.5
    (tmp_path / "b.toml").write_text(read.to_toml())
    assert read_scenario(tmp_path / "b.toml") == read
    own = scenario(tmp_path, life="production", availability={"kind": "always"})
    assert own.groups[0].availability.kind == "always"


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"life": "producton"}, r"life: there is no 'producton' \(did you mean 'production'\?\)"),
        ({"link": {"profile": "6g"}}, r"link.profile: there is no '6g'.*`muster list links`"),
        (
            {"device": {"profile": "pixel"}},
            "device.profile: there is no 'pixel' .*`muster list dev",
        ),
    ],
)
def test_an_unknown_preset_is_refused_with_the_list_of_all(
    tmp_path: Path, group: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"groups\[0\]\.{said}"):
        scenario(tmp_path, **group)


def test_a_preset_takes_what_it_has_not_from_the_one_that_it_is_like(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[sources.x]\nwhat = "X"\nyear = 2020\nlicence = "MIT"\n'
        '[presets.a]\none = 1\ntwo = 2\nsource = "x"\nothers = { two = "assumption" }\n'
        '[presets.b]\nlike = "a"\ntwo = 3\nsource = "assumption"\nassumed = ["two"]\n'
    )
    found = read_catalogue(tmp_path / "c.toml")
    assert found["b"].values == {"one": 1, "two": 3}
    assert (found["a"].base, found["b"].base) == ("a", "a")
    assert found["a"].provenance == "X (2020; MIT); two: assumption"
    assert found["b"].provenance == "assumption; assumption: two"

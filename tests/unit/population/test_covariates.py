from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from muster.client.life.covariates import (
    DEVICE_QUANTITIES,
    RESERVED,
    Covariates,
    Observed,
    z_columns,
)
from muster.common.config import validate
from muster.common.errors import ConfigError

NORMAL = {"kind": "normal"}
OS = {"kind": "categorical", "values": ["15", "14"], "weights": [1, 3]}


def read(z: dict[str, Any] | None = None, x: dict[str, Any] | None = None) -> Covariates:
    return validate(Covariates, {"z": z or {}, "x": x or {}}, "here")


def complaint(**values: Any) -> str:
    with pytest.raises(ConfigError) as error:
        read(**values)
    return str(error.value)


def clients(n: int) -> list[str]:
    return [f"a-{number:04d}" for number in range(n)]


# --- Z -------------------------------------------------------------------------------------------


def test_a_devices_z_depends_on_no_other_device_and_on_no_other_covariate() -> None:
    many = read(z={"os": OS, "age": NORMAL}).draw(7, clients(200), range(200))
    alone = read(z={"age": NORMAL}).draw(7, ["a-0123"], [123])
    assert alone["age"].tobytes() == many["age"][123:124].tobytes()
    other = read(z={"age": NORMAL}).draw(8, ["a-0123"], [123])
    assert other["age"][0] != alone["age"][0]


def test_covariates_with_the_same_distribution_are_drawn_apart() -> None:
    z = read(z={"a": NORMAL, "b": NORMAL}).draw(7, clients(2000), range(2000))
    # Five standard errors, 1/√n, of the correlation of independent numbers.
    assert abs(np.corrcoef(z["a"], z["b"])[0, 1]) < 5 / np.sqrt(2000)


def test_words_become_a_column_for_each_level_that_there_can_be() -> None:
    covariates = read(z={"os": OS, "age": NORMAL, "made": "x"})
    values: dict[str, Sequence[object]] = {
        "os": ["14", "14"],
        "age": [1.5, 2.0],
        "made": ["x", "x"],
    }
    columns = z_columns(values, covariates.levels())
    assert {name: column.tolist() for name, column in columns.items()} == {
        "os=15": [0, 0],
        "os=14": [1, 1],
        "age": [1.5, 2.0],
        "made=x": [1, 1],
    }


def test_without_levels_the_words_that_are_found_are_sorted() -> None:
    columns = z_columns({"os": ["b", "a", "b"]})
    assert {name: column.tolist() for name, column in columns.items()} == {
        "os=a": [0, 1, 0],
        "os=b": [1, 0, 1],
    }
    assert columns["os=a"].dtype == np.float64


# --- X -------------------------------------------------------------------------------------------


def test_x_is_drawn_anew_for_each_step_and_device_or_is_what_the_device_knows() -> None:
    covariates = read(x={"load": NORMAL, "charge": "battery", "one": 1})
    observed = Observed(covariates, 7, clients(300))
    battery = np.linspace(0, 1, 300)
    first, second = (observed.at(step, {"battery": battery}) for step in (0, 1))
    assert first.keys() == {"load", "charge", "one"}
    assert first["charge"] is battery
    assert set(first["one"].tolist()) == {1.0}
    assert abs(np.corrcoef(first["load"], second["load"])[0, 1]) < 5 / np.sqrt(300)
    assert abs(first["load"].mean()) < 5 / np.sqrt(300)


def test_a_devices_x_depends_on_no_other_device_and_not_on_how_far_ahead_it_is_drawn() -> None:
    many = Observed(read(x={"load": NORMAL}), 7, clients(50))
    alone = Observed(read(x={"other": NORMAL, "load": NORMAL}), 7, ["a-0031"], ahead=4)
    for step in (0, 5, 200):
        expected = many.at(step, {})["load"][31:32]
        assert alone.at(step, {})["load"].tobytes() == expected.tobytes()


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["2g", "os=14", "screen size", "", "é"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    said = f"{name!r} cannot be a covariate's name; expected letters, digits and _"
    assert f"z: {said}" in complaint(z={name: 1.0})
    assert f"x: {said}" in complaint(x={name: 1.0})


@pytest.mark.parametrize("name", RESERVED)
def test_names_of_other_columns_are_refused(name: str) -> None:
    assert f"z: no covariate can be called {name!r}" in complaint(z={name: 1.0})


def test_a_name_in_z_and_x_is_refused() -> None:
    assert "a, b is in both z and x" in complaint(z={"a": 1, "b": 1}, x={"a": 1, "b": 1})


def test_an_x_that_no_device_knows_and_words_for_x_are_refused() -> None:
    said = complaint(x={"load": "cpu", "os": OS})
    assert (
        f"x.load: 'cpu' is not a device quantity; expected one of: {', '.join(DEVICE_QUANTITIES)}"
        in (said)
    )
    assert "x.os: expected a number or a distribution of numbers, found 'categorical'" in said


def test_covariates_survive_the_way_to_a_process() -> None:
    covariates = read(z={"os": OS, "made": "x"}, x={"load": NORMAL, "charge": "battery"})
    assert Covariates.from_json(covariates.to_json()) == covariates

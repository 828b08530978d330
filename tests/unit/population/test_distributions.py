import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from muster.common.config import Section, validate
from muster.common.distributions import (
    BUILT_IN,
    AnyDistribution,
    AnyNumber,
    Categorical,
    Distribution,
    File,
    LogNormal,
    Normal,
    PositionDistribution,
    UniformDistribution,
    distribution_of,
    draw,
    numbers_for_devices,
)
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray, Numbers, stream

MANY = 400_000


class Settings(Section):
    """A place for a distribution and a number."""

    any: AnyDistribution = 0.0
    number: AnyNumber = 0.0


def read(**values: Any) -> Settings:
    return validate(Settings, values, "here")


def complaint(**values: Any) -> str:
    with pytest.raises(ConfigError) as error:
        read(**values)
    lines = str(error.value).splitlines()
    assert lines[0] == "here: 1 mistake"
    return lines[1].strip()


@pytest.fixture(scope="module")
def numbers() -> FloatArray:
    return stream(5, "a test").random((MANY, 2))


# --- what is drawn -------------------------------------------------------------------------------


def within(values: FloatArray, mean: float, variance: float, fourth: float) -> None:
    """Mean and variance of `values` within five standard errors; `fourth` central moment."""
    n = len(values)
    assert values.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / n))
    error = math.sqrt((fourth - variance**2) / n)
    assert values.var() == pytest.approx(variance, abs=5 * error)


def test_a_normal_number_has_its_mean_and_standard_deviation(numbers: FloatArray) -> None:
    found = Normal(mean=3.0, sd=2.0).draw(numbers)
    assert found.shape == (MANY,)
    within(found, 3.0, 4.0, 3 * 16)
    # The share below mean + 1.96 sd, whose binomial standard error is 0.00025.
    assert np.mean(found < 3 + 1.959964 * 2) == pytest.approx(0.975, abs=0.00125)


def test_a_uniform_number_has_the_moments_of_its_interval(numbers: FloatArray) -> None:
    found = UniformDistribution(low=-1.0, high=5.0).draw(numbers)
    assert found.min() >= -1
    assert found.max() <= 5
    within(found, 2.0, 36 / 12, 6**4 / 80)


def test_a_log_normal_number_has_its_median_and_sigma(numbers: FloatArray) -> None:
    found = LogNormal(median=400.0, sigma=0.5).draw(numbers)
    within(np.log(found), math.log(400), 0.25, 3 * 0.25**2)
    assert np.mean(found < 400) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(MANY))


@pytest.mark.parametrize(
    ("weights", "shares"),
    [(None, [1 / 3, 1 / 3, 1 / 3]), ([0.0, 3.0, 1.0], [0, 0.75, 0.25])],
)
def test_words_come_as_often_as_their_weights_say(
    weights: list[float] | None, shares: list[float], numbers: FloatArray
) -> None:
    found = Categorical(values=["b", "a", "c"], weights=weights).draw(numbers)
    for word, share in zip(["b", "a", "c"], shares, strict=True):
        error = math.sqrt(share * (1 - share) / MANY)
        assert np.mean(found == word) == pytest.approx(share, abs=5 * error)


def test_the_ends_of_the_uniform_numbers_give_finite_values_that_can_be() -> None:
    ends = np.array([[0.0, 0.0], [1 - 2**-53, 1 - 2**-53]])
    for distribution in (Normal(), UniformDistribution(), LogNormal(median=1.0, sigma=1.0)):
        assert np.isfinite(distribution.draw(ends)).all()
    unlikely = Categorical(values=["never", "a", "b", "nor"], weights=[0.0, 1.0, 2.0, 0.0])
    assert unlikely.draw(ends).tolist() == ["a", "b"]


def test_what_does_not_vary_is_constant(numbers: FloatArray) -> None:
    for same in (2.5, Normal(mean=2.5, sd=0.0), UniformDistribution(low=2.5, high=2.5)):
        assert set(draw(same, numbers[:10]).tolist()) == {2.5}
    assert set(distribution_of("ios").draw(numbers[:10]).tolist()) == {"ios"}


# --- as settings ---------------------------------------------------------------------------------


def test_a_bare_number_or_text_stays_bare_and_a_table_names_a_distribution() -> None:
    settings = read(any="ios", number={"kind": "normal", "mean": 1, "sd": 2})
    assert settings == Settings(any="ios", number=Normal(kind="normal", mean=1.0, sd=2.0))
    assert settings.model_dump(exclude_none=True) == {
        "any": "ios",
        "number": {"kind": "normal", "mean": 1.0, "sd": 2.0},
    }
    assert read(number=3).number == 3.0


@pytest.mark.parametrize(
    "value",
    [
        3.5,
        "ios",
        {"kind": "constant", "value": "ios"},
        {"kind": "normal"},
        {"kind": "uniform", "high": 2.0},
        {"kind": "log-normal", "median": 1.0, "sigma": 0.1},
        {"kind": "categorical", "values": ["a", "b"]},
        {"kind": "file", "path": "z.csv", "column": "age"},
    ],
)
def test_a_setting_survives_the_resolved_scenario_and_the_way_to_a_process(value: Any) -> None:
    settings = read(any=value)
    resolved = tomli_w.dumps(settings.model_dump(exclude_none=True))
    assert read(**tomllib.loads(resolved)) == settings
    assert Settings.from_json(settings.to_json()) == settings


BAD = [
    ({"kind": "normal", "sd": -1.0}, ".sd: expected at least 0, found -1.0"),
    ({"kind": "normal", "mean": "x"}, ".mean: expected a valid number, found 'x'"),
    ({"kind": "normal", "mean": math.nan}, ".mean: expected a finite number, found nan"),
    ({"kind": "uniform", "low": 2.0, "high": 1.0}, ": low = 2 is above high = 1"),
    (
        {"kind": "log-normal", "median": 0.0, "sigma": 1.0},
        ".median: expected at least 1e-12, found 0.0",
    ),
    (
        {"kind": "log-normal", "median": 1.0, "sigma": -0.5},
        ".sigma: expected at least 0, found -0.5",
    ),
    ({"kind": "categorical"}, ".values: required, but missing"),
    ({"kind": "categorical", "values": []}, ": values is empty; expected at least one"),
    ({"kind": "categorical", "values": ["a", ""]}, ": values has an empty text; expected words"),
    (
        {"kind": "categorical", "values": ["a", "b", "a"]},
        ": values has 'a' more than once",
    ),
    (
        {"kind": "categorical", "values": ["a", "b"], "weights": [1.0]},
        ": 1 weights for 2 values; expected one for each",
    ),
    (
        {"kind": "categorical", "values": ["a", "b"], "weights": [1.0, -1.0]},
        ".weights[1]: expected at least 0, found -1.0",
    ),
    (
        {"kind": "categorical", "values": ["a", "b"], "weights": [0.0, 0.0]},
        ": weights add up to 0; expected a number above 0",
    ),
    ({"kind": "constant", "value": ""}, ": value is empty text; expected a number, or a word"),
    ({"kind": "file", "path": "z.csv"}, ".column: required, but missing"),
]


@pytest.mark.parametrize(("value", "said"), BAD)
def test_bad_parameters_are_refused_with_a_sentence(value: dict[str, Any], said: str) -> None:
    assert complaint(any=value) == f"any{said}"


@pytest.mark.parametrize("value", [True, "", math.inf, ["a"]])
def test_what_is_no_distribution_is_refused(value: object) -> None:
    expected = f"any: expected a number, text or a distribution's table, found {value!r}"
    assert complaint(any=value) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("fast", "expected a number or a distribution's table, found 'fast'"),
        (
            {"kind": "constant", "value": "fast"},
            "expected a number or a distribution of numbers, found 'constant'",
        ),
        (
            {"kind": "categorical", "values": ["a"]},
            "expected a number or a distribution of numbers, found 'categorical'",
        ),
    ],
)
def test_where_a_number_is_needed_words_are_refused(value: object, said: str) -> None:
    assert complaint(number=value) == f"number: {said}"


def test_an_unknown_distribution_is_refused_with_the_names_of_those_there_are() -> None:
    assert ", ".join(sorted(BUILT_IN)) in complaint(any={"kind": "gauss"})


class Squared(Distribution):
    """Somebody's own."""

    def draw(self, numbers: FloatArray, clients: Any = (), positions: Any = ()) -> FloatArray:
        return numbers[:, 0] ** 2


def test_a_distribution_of_ones_own_is_found_by_its_module() -> None:
    settings = read(number={"kind": f"{__name__}:Squared"})
    assert isinstance(settings.number, Squared)
    assert draw(settings.number, np.array([[0.5, 0.0]])).tolist() == [0.25]


# --- files ---------------------------------------------------------------------------------------


def of_file(tmp_path: Path, text: str, column: str = "age") -> File:
    path = tmp_path / "z.csv"
    path.write_text(text, encoding="utf-8")
    return File(kind="file", path=str(path), column=column)


def looked_up(file: File, clients: list[str], first: int = 0) -> list[float | str]:
    numbers = Numbers(1, ("z",), clients, width=2).at(0)
    found: list[float | str] = file.draw(
        numbers, clients, range(first, first + len(clients))
    ).tolist()
    return found


def test_a_value_by_position_grows_evenly_and_draws_nothing() -> None:
    by_place = PositionDistribution(kind="position", first=2.0, step=-0.5)
    assert by_place.draw(np.zeros((3, 2)), (), range(4, 7)).tolist() == [0.0, -0.5, -1.0]
    assert by_place.draw(np.ones((2, 2)), ("b", "a"), [1, 0]).tolist() == [1.5, 2.0]


def test_a_file_with_clients_is_read_by_their_names(tmp_path: Path) -> None:
    text = "client,age,os\na-0001,2.5,14\na-0000,1,14b\nb-0000,7,13\n"
    assert looked_up(of_file(tmp_path, text), ["a-0000", "a-0001"], first=90) == [1.0, 2.5]
    words = of_file(tmp_path, text, "os")
    assert looked_up(words, ["b-0000", "a-0000"]) == ["13", "14b"]
    assert words.levels() == ["13", "14", "14b"]
    assert of_file(tmp_path, text).levels() == []


def test_a_file_without_clients_is_read_by_position_in_the_population(tmp_path: Path) -> None:
    # As a spreadsheet writes it: with a byte-order mark, its line ends and an empty line.
    text = "\ufeffage, os\r\n10,x\r\n20,y\r\n30, z\r\n\r\n"
    file = of_file(tmp_path, text)
    assert looked_up(file, ["b-0000", "b-0001"], first=1) == [20.0, 30.0]
    assert looked_up(of_file(tmp_path, text, "os"), ["b-0000"], first=2) == ["z"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age\n1\n2\n", "has 2 rows, and no column 'client'; expected one for every device"),
        ("client,age\na-0000,1\n", "has no row of client 'a-0001' nor of 1 others"),
        (
            "client,age\na-0000,1\na-0000,2\n",
            "line 3: client 'a-0000' has more than one row, the first in line 2",
        ),
        ("ages\n1\n", "has no column 'age'; there are: ages"),
        ("", "has no column 'age'; there are: "),
        ("age\n1\n\n3\n", "line 3 has nothing in column 'age'"),
        ("os,age\na,1\nb\n", "line 3 has nothing in column 'age'"),
        (
            "age\n1\nnan\n2\n",
            "line 3: expected a number from -1e.12 to 1e.12 in column 'age', found 'nan'",
        ),
    ],
)
def test_a_file_that_lacks_what_is_needed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        looked_up(of_file(tmp_path, text), ["a-0000", "a-0001", "a-0002"])


def test_words_of_a_file_are_refused_where_numbers_are_needed(tmp_path: Path) -> None:
    words = of_file(tmp_path, "os,age\n14b,1\n13,2\n", "os")
    with pytest.raises(ValueError, match=r"z.csv, line 2: expected a number .* found '14b'"):
        numbers_for_devices(words, 1, ["a"], [0], "os")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    absent = File(path=str(tmp_path / "absent.csv"), column="age")
    with pytest.raises(ValueError, match=r"absent\.csv cannot be read: .*No such file"):
        looked_up(absent, ["a-0000"])

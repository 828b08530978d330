import csv
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from muster.client.life.covariates import Covariates
from muster.common.distributions import (
    Categorical,
    Distribution,
    File,
    LogNormal,
    Normal,
    UniformDistribution,
)
from muster.common.errors import ConfigError
from muster.common.per_device import PerDevice
from muster.common.seeds import FloatArray
from muster.emulator.links.settings import LinkSettings
from muster.emulator.scenario.enrollment import (
    BernoulliEnrollment,
    EnrollAll,
    Enrollment,
    LogisticEnrollment,
    Range,
    Rule,
)
from muster.emulator.scenario.population import Resident, names_of, population, write_population


@dataclass(frozen=True)
class Device:
    profile: str = "phone"

    def looked_up(self) -> dict[str, tuple[Distribution, PerDevice]]:
        return {}


NOTHING = Covariates()
EVERYBODY = EnrollAll()
PHONE = Device()
NO_LINK = LinkSettings()


@dataclass(frozen=True)
class Group:
    name: str = "a"
    count: int = 10
    covariates: Covariates = NOTHING
    enrollment: Enrollment = EVERYBODY
    device: Device = PHONE
    link: LinkSettings = NO_LINK


@dataclass(frozen=True)
class Scenario:
    groups: list[Group] = field(default_factory=list)
    seed: int = 7


OS = Categorical(values=["14", "15"], weights=[0.25, 0.75])
PHONES = Group("phones", 300, Covariates(z={"age": Normal(mean=1.0, sd=2.0), "os": OS}))
GATES = Group("gates", 100, Covariates(z={"age": 5.0}), device=Device("gateway"))


def test_names_and_positions_run_through_the_groups() -> None:
    assert names_of([Group("a", 2), Group("b", 1)]) == [
        ("a-0000", "a"),
        ("a-0001", "a"),
        ("b-0000", "b"),
    ]
    residents = population(Scenario([PHONES, GATES]))
    assert [resident.index for resident in residents] == list(range(400))
    named = [(resident.client, resident.group) for resident in residents]
    assert named == names_of([PHONES, GATES])
    assert residents[399] == Resident("gates-0099", "gates", 399, {"age": 5.0}, True, 1.0)


def test_a_device_is_the_same_whatever_others_there_are() -> None:
    logistic = LogisticEnrollment(z={"age": 1.0})
    few = replace(PHONES, count=20, enrollment=logistic)
    alone = population(Scenario([few]))
    more = replace(few, count=300)
    among = population(Scenario([GATES, more]))[100:120]
    assert [replace(resident, index=resident.index - 100) for resident in among] == alone
    # And whatever else is observed of it.
    covariates = Covariates(z={"other": UniformDistribution(), **few.covariates.z})
    beside = population(Scenario([replace(few, covariates=covariates)]))
    for found, expected in zip(beside, alone, strict=True):
        assert {**found.z, "other": None} == {**expected.z, "other": None}
        assert (found.enrolled, found.propensity) == (expected.enrolled, expected.propensity)


def test_a_file_is_read_by_client_and_by_position_in_the_population(tmp_path: Path) -> None:
    by_client, by_position = tmp_path / "client.csv", tmp_path / "position.csv"
    by_client.write_text("client,age\nb-0001,3\nb-0000,2\nc-0000,9\n")
    by_position.write_text("age\n10\n11\n12\n13\n")
    for path, expected in ((by_client, [2, 3]), (by_position, [12, 13])):
        covariates = Covariates(z={"age": File(path=str(path), column="age")})
        residents = population(Scenario([Group("a", 2), Group("b", 2, covariates)]))
        assert [resident.z["age"] for resident in residents[2:]] == expected


def test_a_rule_reads_covariates_and_the_profile() -> None:
    rule = Rule(where={"age": Range(min=1.0), "profile": ["phone"]})
    groups = [replace(group, enrollment=rule) for group in (PHONES, GATES)]
    for resident in population(Scenario(groups)):
        age = resident.z["age"]
        assert isinstance(age, float)
        accepted = age >= 1 and resident.group == "phones"
        assert resident.enrolled == accepted
        assert resident.propensity == float(accepted)


@pytest.mark.parametrize(
    "enrollment",
    [
        LogisticEnrollment(intercept=-1.0, z={"age": 0.5, "os=15": 1.0}),
        BernoulliEnrollment(probability=0.2),
    ],
)
def test_as_many_are_enrolled_as_the_propensities_say(enrollment: Enrollment) -> None:
    residents = population(Scenario([replace(PHONES, count=20_000, enrollment=enrollment)]))
    propensities = np.array([resident.propensity for resident in residents])
    enrolled = np.array([resident.enrolled for resident in residents])
    error = math.sqrt((propensities * (1 - propensities)).sum())
    assert enrolled.sum() == pytest.approx(propensities.sum(), abs=5 * error)
    # And also where they are likely, not only on the whole.
    likely = propensities > np.median(propensities)
    expected = propensities[likely].sum()
    assert enrolled[likely].sum() == pytest.approx(expected, abs=5 * error)


def test_logistic_enrollment_is_exact_at_the_z_that_were_drawn() -> None:
    enrollment = LogisticEnrollment(intercept=-1.0, z={"age": 0.5, "os=15": 1.0})
    for resident in population(Scenario([replace(PHONES, enrollment=enrollment)])):
        odds = -1 + 0.5 * float(resident.z["age"]) + (resident.z["os"] == "15")
        assert resident.propensity == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-14)


@pytest.mark.parametrize("with_participation", [True, False])
def test_the_population_is_read_back_from_its_file(
    tmp_path: Path, with_participation: bool
) -> None:
    enrollment = LogisticEnrollment(z={"age": 1.0})
    residents = population(Scenario([replace(PHONES, enrollment=enrollment), GATES]))
    chances = np.linspace(0, 1, 400).tolist() if with_participation else None
    write_population(tmp_path / "population.csv", residents, chances)
    with open(tmp_path / "population.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "client",
        "group",
        "enrolled",
        "enrollment_propensity",
        "participation_propensity",
        "age",
        "os",
    ]
    for number, (row, resident) in enumerate(zip(rows, residents, strict=True)):
        assert (row["client"], row["group"]) == (resident.client, resident.group)
        assert row["enrolled"] == str(int(resident.enrolled))
        assert float(row["enrollment_propensity"]) == resident.propensity
        assert float(row["age"]) == resident.z["age"]
        assert row["os"] == resident.z.get("os", "")
        chance = row["participation_propensity"]
        assert chance == "" if chances is None else float(chance) == chances[number]


# --- mistakes ------------------------------------------------------------------------------------


def refused(*groups: Group) -> str:
    with pytest.raises(ConfigError) as error:
        population(Scenario(list(groups)))
    return str(error.value)


def test_a_population_of_which_nobody_is_enrolled_is_refused() -> None:
    nobody = replace(PHONES, enrollment=BernoulliEnrollment(probability=0.0))
    said = "no device is enrolled: none of 300 devices has a propensity above 0"
    assert said in refused(nobody)
    assert population(Scenario([nobody, GATES]))[300].enrolled


def test_mistakes_are_told_with_the_keys_path(tmp_path: Path) -> None:
    rule = replace(GATES, enrollment=Rule(where={"os": ["14"]}))
    said = "groups[1].enrollment.where.os: no covariate Z has this name; there are: age, profile"
    assert refused(PHONES, rule) == said
    logistic = replace(GATES, enrollment=LogisticEnrollment(z={"load": 1.0}))
    said = "groups[0].enrollment.z.load: no covariate Z has this name; there are: age"
    assert refused(logistic) == said
    file = File(path=str(tmp_path / "absent.csv"), column="age")
    absent = replace(GATES, covariates=Covariates(z={"age": file}))
    assert refused(absent).startswith(f"groups[0].covariates.z.age: {file.path} cannot be read")


def test_covariates_that_are_no_finite_numbers_are_refused() -> None:
    class Infinite(LogNormal):
        """A distribution of the user's own, of which nothing is known."""

        def draw(self, numbers: FloatArray, *_: object) -> FloatArray:
            return np.where(numbers[:, 0] < 0.5, math.inf, 1.0)

    wide = replace(GATES, covariates=Covariates(z={"age": Infinite(median=1.0, sigma=1.0)}))
    said = refused(PHONES, wide)
    assert said.startswith("groups[1].covariates.z.age: expected finite numbers, but ")
    assert ": inf); choose a distribution with smaller values" in said


def test_a_covariate_is_numbers_or_words_in_all_groups() -> None:
    words = replace(PHONES, covariates=Covariates(z={"age": "old"}))
    assert "covariate 'age' is a word in group phones and a number in group gates" in refused(
        words, GATES
    )


# --- size ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_thousand_devices_take_seconds(tmp_path: Path) -> None:
    enrollment = LogisticEnrollment(z={"age": 1.0, "os=14": -1.0})
    many = replace(PHONES, count=100_000, enrollment=enrollment)
    began = process_time()
    residents = population(Scenario([many]))
    write_population(tmp_path / "population.csv", residents, None)
    took_s = process_time() - began
    print(f"100,000 devices: {took_s:.1f} s")  # noqa: T201
    age = np.mean([resident.z["age"] for resident in residents])
    assert age == pytest.approx(1.0, abs=5 * 2 / math.sqrt(100_000))
    # Some 3 s of a core; much more would mean a loop where there should be an array.
    assert took_s < 30

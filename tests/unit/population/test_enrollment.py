import math
from typing import Annotated, Any

import numpy as np
import pytest

from muster.common.config import Section, validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.enrollment import (
    BUILT_IN,
    AnyEnrollment,
    BernoulliEnrollment,
    EnrollAll,
    Enrollment,
    LogisticEnrollment,
    Rule,
)

LEVELS: dict[str, list[str]] = {"age": [], "os": ["14", "15"]}
RAW = {
    "age": np.array([1.0, 2.0, 3.0, 4.0]),
    "os": np.array(["14", "15", "14", "15"]),
    "profile": np.full(4, "phone"),
}
Z = {
    "age": RAW["age"],
    "os=14": np.array([1.0, 0.0, 1.0, 0.0]),
    "os=15": np.array([0.0, 1.0, 0.0, 1.0]),
}


class Settings(Section):
    """A place for an enrollment."""

    enrollment: Annotated[AnyEnrollment, "as in a group"] = EnrollAll(kind="all")


def read(**values: Any) -> Enrollment:
    enrollment: Enrollment = validate(Settings, {"enrollment": values}, "here").enrollment
    return enrollment


def propensity(**values: Any) -> list[float]:
    enrollment = read(**values)
    enrollment.check(LEVELS)
    found: list[float] = enrollment.propensity(Z, RAW, 4).tolist()
    return found


def test_all_and_bernoulli_do_not_look_at_covariates() -> None:
    assert propensity(kind="all") == [1.0] * 4
    assert propensity(kind="bernoulli", probability=0.3) == [0.3] * 4


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"age": {"min": 2}}, [0, 1, 1, 1]),
        ({"age": {"max": 3.0}}, [1, 1, 1, 0]),
        ({"age": {"min": 2, "max": 3}}, [0, 1, 1, 0]),
        ({"age": [1, 4.0]}, [1, 0, 0, 1]),
        ({"os": ["14"]}, [1, 0, 1, 0]),
        ({"os": ["14"], "age": {"min": 2}}, [0, 0, 1, 0]),
        ({"profile": ["phone", "tablet"]}, [1, 1, 1, 1]),
        ({"profile": ["gateway"]}, [0, 0, 0, 0]),
        ({"os": ["16"]}, [0, 0, 0, 0]),
    ],
)
def test_a_rule_enrolls_exactly_those_that_satisfy_all_of_it(
    where: dict[str, Any], expected: list[float]
) -> None:
    assert propensity(kind="rule", where=where) == expected


def test_logistic_propensities_are_exact() -> None:
    found = propensity(kind="logistic", intercept=-1.0, z={"age": 0.5, "os=15": -2.0})
    odds = [-1 + 0.5 * 1, -1 + 0.5 * 2 - 2, -1 + 0.5 * 3, -1 + 0.5 * 4 - 2]
    assert found == pytest.approx([1 / (1 + math.exp(-o)) for o in odds], rel=1e-15)


def test_logistic_propensities_stay_in_range_and_exact_in_the_tails() -> None:
    far = {"age": np.array([-1000.0, -50.0, 50.0, 1000.0])}
    found = LogisticEnrollment(z={"age": 1.0}).propensity(far, {}, 4).tolist()
    assert found == [0.0, pytest.approx(math.exp(-50), rel=1e-12), 1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "rule", "where": {}}, "where is empty; expected a condition, or kind = 'all'"),
        ({"kind": "rule"}, "enrollment.where: required, but missing"),
        ({"kind": "rule", "where": {"age": 3}}, "enrollment.where.age: expected a list of"),
        ({"kind": "rule", "where": {"age": []}}, "enrollment.where.age: expected a list of"),
        ({"kind": "rule", "where": {"age": [1, "a"]}}, "enrollment.where.age: expected a list of"),
        ({"kind": "rule", "where": {"age": {}}}, "where.age: expected min, max or both"),
        (
            {"kind": "rule", "where": {"age": {"min": 2, "max": 1}}},
            "where.age: min = 2 is above max = 1",
        ),
        ({"kind": "rule", "where": {"age": {"least": 2}}}, "where.age.least: unknown key"),
        ({"kind": "bernoulli", "probability": 1.5}, "enrollment.probability: expected at most"),
        ({"kind": "logistic", "z": {"age": "a"}}, "enrollment.z.age: expected a valid number"),
        ({"kind": "lottery"}, "there are: all, bernoulli, logistic, rule"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(**values)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("enrollment", "said"),
    [
        (
            Rule(where={"aeg": [1.0]}),
            "where.aeg: no covariate Z has this name; .*: age, os, profile",
        ),
        (Rule(where={"os": [14.0]}), "where.os: it is a word; expected a list of accepted words"),
        (Rule(where={"profile": [1.0]}), "where.profile: it is a word"),
        (Rule(where={"age": ["old"]}), "where.age: it is a number; expected a list of accepted"),
        (
            LogisticEnrollment(z={"os": 1.0}),
            "z.os: no covariate Z has this name; .*: age, os=14, os=15",
        ),
        (LogisticEnrollment(z={"os=16": 1.0}), "z.os=16: no covariate Z has this name"),
    ],
)
def test_names_that_no_covariate_has_and_the_wrong_sort_are_refused(
    enrollment: Enrollment, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        enrollment.check(LEVELS)


@pytest.mark.parametrize(
    "enrollment",
    [
        EnrollAll(kind="all"),
        BernoulliEnrollment(kind="bernoulli", probability=0.5),
        LogisticEnrollment(kind="logistic", intercept=1.0, z={"os=14": 2.0}),
        read(kind="rule", where={"os": ["14"], "age": {"min": 2}, "level": [1.0, 2.0]}),
    ],
    ids=sorted(BUILT_IN),
)
def test_an_enrollment_survives_the_resolved_scenario(enrollment: Enrollment) -> None:
    values = Settings(enrollment=enrollment).model_dump(exclude_none=True)
    assert validate(Settings, values, "again").enrollment == enrollment

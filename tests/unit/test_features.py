import numpy as np
import pytest

from muster.common.features import Feature

Z1, Z2, OS15 = np.array([-1.0, 0.5, 2.0]), np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 1.0])
COLUMNS = {"z1": Z1, "z2": Z2, "os=15": OS15}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("z1", [-1, 0.5, 2]),
        ("os=15", [0, 1, 1]),
        ("z1 > 0.5", [0, 0, 1]),
        ("z1 >= 0.5", [0, 1, 1]),
        ("z1 < 0.5", [1, 0, 0]),
        ("z1 <= 0.5", [1, 1, 0]),
        ("z1 > -1e3", [1, 1, 1]),
        ("z1 ^ 2", [1, 0.25, 4]),
        ("z1 * z2", [-3, 2, 10]),
        ("z1 * os=15", [0, 0.5, 2]),
        ("os=15 * z1", [0, 0.5, 2]),
    ],
)
def test_a_feature_is_what_it_says(text: str, values: list[float]) -> None:
    found = Feature.parse(text).of(COLUMNS)
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.float64


@pytest.mark.parametrize(
    ("text", "canonical", "columns"),
    [
        (" z1 ", "z1", ("z1",)),
        ("z1>0.50", "z1 > 0.5", ("z1",)),
        ("z1>=1.0", "z1 >= 1", ("z1",)),
        ("z1 > -0", "z1 > 0", ("z1",)),
        ("z1 < 0.1234567890123", "z1 < 0.1234567890123", ("z1",)),
        ("z1^2", "z1 ^ 2", ("z1",)),
        ("a*b", "a * b", ("a", "b")),
        ("os=Android 15", "os=Android 15", ("os=Android 15",)),
        ("os=Android 15 * os=iOS 9", "os=Android 15 * os=iOS 9", ("os=Android 15", "os=iOS 9")),
        ("os=4.4-r2 * _b", "os=4.4-r2 * _b", ("os=4.4-r2", "_b")),
    ],
)
def test_equal_features_have_equal_texts(
    text: str, canonical: str, columns: tuple[str, ...]
) -> None:
    feature = Feature.parse(text)
    assert feature.text == canonical
    assert feature.columns == columns
    assert Feature.parse(canonical) == feature


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is no feature"),
        ("2z", "is no feature"),
        ("z1 >", "is no feature"),
        ("z1 + z2", "is no feature"),
        ("z1 * z2 * z3", "expected a covariate after \\*, found 'z2 \\* z3'"),
        ("z1 > z2", "expected a number to compare with, found 'z2'"),
        ("z1 > inf", "expected a number to compare with, found 'inf'"),
        ("z1 ^ 3", "the only power is 2, found '3'"),
        ("z1 * 2", "expected a covariate after \\*, found '2'"),
    ],
)
def test_what_is_no_feature_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Feature.parse(text)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("os=a > 5", Feature("os=a > 5")),
        ("os=a > 5.0", Feature("os=a > 5")),  # is written like the column
        ("os= lead ", Feature("os= lead ")),
        ("os=a > 6", Feature("os=a", ">", "6")),
        ("os=a * z1", Feature("os=a", "*", "z1")),
    ],
)
def test_a_column_comes_before_what_its_name_would_mean(text: str, feature: Feature) -> None:
    found = Feature.parse(text, ["z1", "os=a", "os=a > 5", "os= lead "])
    assert found == feature
    assert Feature(found.column).text == found.column

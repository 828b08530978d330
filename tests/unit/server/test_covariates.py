"""The covariates that devices report, held to the bounds of the scenario."""

import pytest

from muster.common.exchange import Answer, Decision, Identity, Key, Observation
from muster.server.fleet.covariates import ReportedCovariates
from muster.server.fleet.devices import EnrolledDevice


class World:
    def __init__(self, known: dict[str, dict[str, float]] | None = None) -> None:
        self.device = EnrolledDevice("a", "g", 0, 5)
        self.said: list[str] = []
        devices = {"a": self.device, "b": EnrolledDevice("b", "h", 1, 5)}
        z = {"g": {"age": (0.0, 9.0)}}
        x = {"g": {"load": (0.0, 1.0), "sun": (-1.0, 1.0)}}
        self.covariates = ReportedCovariates(devices, z, x, known or {}, self.said.append)

    def z(self, z: dict[str, float], client: str = "a") -> object:
        return self.covariates.of_identity(Identity(client, 5, z=z)).z


@pytest.mark.parametrize("age", [0.0, 9.0, 9.0 + 1e-9, 3.5])
def test_covariates_z_within_their_bounds_are_kept(age: float) -> None:
    w = World()
    assert w.z({"age": age}) == {"age": age}
    assert not w.said


@pytest.mark.parametrize(
    ("z", "why"),
    [
        ({"age": 9.1}, "age = 9.1, expected 0 to 9"),
        ({"age": -1e30}, "age = -1e+30, expected 0 to 9"),
        ({}, "age is missing"),
        ({"age": 1.0, "os": 1.0}, "os, which its group does not have"),
    ],
)
def test_other_covariates_z_count_as_not_known_and_are_told_once(
    z: dict[str, float], why: str
) -> None:
    w = World()
    assert w.z(z) is None
    assert w.z(z) is None
    assert w.said == [f"a reports impossible covariates Z: {why}; they count as not known"]


def test_what_the_server_knows_of_z_stays() -> None:
    w = World(known={"a": {"age": 3.0}})
    assert w.z({"age": 4.0}) == {"age": 3.0}
    assert "age, which the server knows otherwise; it stays" in w.said[0]


def test_what_a_device_told_first_of_z_stays() -> None:
    w = World()
    w.device.z = {"age": 2.0}
    assert w.z({"age": 3.0}) == {"age": 2.0}
    assert w.z({"age": 2.0}) == {"age": 2.0}


def test_a_group_without_bounds_is_believed() -> None:
    assert World().z({"age": 1e9}, "b") == {"age": 1e9}


@pytest.mark.parametrize("x", [(0.5, 1.1), (-0.1, 0.0), (1e30, 1e30)])
def test_covariates_x_outside_their_bounds_count_as_not_known(x: tuple[float, ...]) -> None:
    w, right = World(), (0.5, -1.0)
    later = [Observation("a", None, x), Observation("a", None, right)]
    answer = Answer(Key("a", 1, 1), Decision.DECLINE, x=x, foreseen=later)
    found = w.covariates.of_answer(answer)
    assert (found.x, [each.x for each in found.foreseen]) == ((), [(), right])
    assert w.covariates.of_observation(Observation("a", None, right)).x == right
    assert len(w.said) == 1

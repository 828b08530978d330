"""Containers that Docker does not freeze at once."""

from types import SimpleNamespace
from typing import Any

import docker
import docker.errors
import pytest
import requests

from muster.emulator.launch.holds import HeldContainer


def refusal(status: int, why: str) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError("refused", response=response, explanation=why)


BUSY = refusal(500, "Cannot pause container x: OCI runtime pause failed: unable to freeze: unknown")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a held container whose first pauses are refused, and the pauses that were asked."""

    def hold(*refusals: Exception) -> tuple[HeldContainer, list[str]]:
        left, asked = list(refusals), list[str]()

        def pause(container: str) -> None:
            asked.append(container)
            if left:
                raise left.pop(0)

        inspect: dict[str, Any] = {"HostConfig": {}}
        api = SimpleNamespace(inspect_container=lambda container: inspect, pause=pause)
        monkeypatch.setattr(docker, "from_env", lambda: SimpleNamespace(api=api))
        return HeldContainer("x"), asked

    return hold


def test_a_container_that_is_too_busy_to_be_frozen_is_frozen_soon(held: Any) -> None:
    container, asked = held(BUSY, BUSY)
    container.pause()
    assert asked == ["x"] * 3


@pytest.mark.parametrize(
    ("refusals", "times"),
    [([BUSY] * 100, 10), ([refusal(409, "Container x is not running")], 1)],
    ids=["always busy", "ended"],
)
def test_a_pause_that_cannot_be_is_refused(
    held: Any, refusals: list[docker.errors.APIError], times: int
) -> None:
    container, asked = held(*refusals)
    with pytest.raises(docker.errors.APIError):
        container.pause()
    assert asked == ["x"] * times

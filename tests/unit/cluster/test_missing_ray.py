"""The ray backend where Ray is not installed."""

import sys

import pytest

from muster.common.errors import ConfigError
from muster.emulator.launch.choice import kind_of

USES_RAY = [f"muster.emulator.launch.ray.{name}" for name in ("checks", "cluster", "node_actor")]


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in USES_RAY:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ConfigError, match=r"pip install -e '.*\[ray\]'"):
        kind_of("ray")

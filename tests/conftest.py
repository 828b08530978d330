"""Settings that all tests share."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.outcomes import Recorder

from muster.common.causes import own_modules
from muster.common.processes import OWN_CODE
from muster.tasks.files import DATA_VARIABLE

# There is no deadline per example, because a test must not depend on the machine's speed. Examples
# are derived from the test itself, so that a failure on one machine is a failure on every machine.
# `make test-fast` takes the profile `fast`.
settings.register_profile(
    "long", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("muster", settings.get_profile("long"), max_examples=50)
settings.register_profile("fast", settings.get_profile("long"), max_examples=20)
settings.load_profile("long" if os.environ.get("MUSTER_SOAK") == "1" else "muster")

# A shell starts commands in the background with SIGINT ignored, and programs inherit that. The
# tests that interrupt a program need the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Record the outcomes where CI asks for it. Neither the processes of pytest-xdist nor runs of
    pytest that a test starts find the variable, so each test is recorded once."""
    config.pluginmanager.register(Sampling())
    file = os.environ.pop("MUSTER_OUTCOMES", None)
    if file:
        config.pluginmanager.register(Recorder(Path(file)))


class Sampling:
    """Makes soak tests of all sets of parameters of a sampled test, except as many as its marker
    says, evenly spread over all of them, also of those that -k or -m leave out."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        sets: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("sampled"):
                sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for same in sets.values():
            (marker,) = same[0].iter_markers("sampled")
            (number,) = marker.args
            played = {place * len(same) // number for place in range(number)}
            for place, item in enumerate(same):
                if place not in played:
                    item.add_marker(pytest.mark.soak)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the soak tests. They are long, and shorter tests cover the same code; `make soak` runs
    them. There none may be skipped because its folder waits for a target of its own."""
    asked = os.environ.get("MUSTER_SOAK") == "1"
    for item in items:
        if not item.get_closest_marker("soak"):
            continue
        skip = item.get_closest_marker("skip")
        if not asked:
            item.add_marker(pytest.mark.skip(reason="long: make soak"))
        elif skip is not None:
            raise pytest.UsageError(
                f"{item.nodeid} is a soak test, but would be skipped: {skip.kwargs['reason']}; let "
                f"make soak set what it waits for"
            )


_INSTALLED = frozenset(map(Path, sys.path))


@pytest.fixture(scope="session", autouse=True)
def published_here() -> Iterator[str | None]:
    """Where this machine has the published data sets: what MUSTER_DATA says. Tests do not find the
    variable, because a scenario that is read takes its data from there."""
    with pytest.MonkeyPatch.context() as patched:
        directory = os.environ.get(DATA_VARIABLE)
        patched.delenv(DATA_VARIABLE, raising=False)
        yield directory


@pytest.fixture
def published(published_here: str | None) -> Path:
    """The folder of the published data sets."""
    if published_here is None:
        pytest.skip(f"{DATA_VARIABLE} is not set")
    return Path(published_here)


@pytest.fixture(autouse=True)
def own_code_forgotten() -> Iterator[None]:
    """Forget the code of its own that a test imports, because other tests have modules of the same
    name."""
    path, finders, known = list(sys.path), list(sys.meta_path), set(sys.modules)
    noted = set(own_modules)
    inherited = {name: os.environ.get(name) for name in ("PYTHONPATH", OWN_CODE)}
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    own_modules.clear()
    own_modules.update(noted)
    for name, value in inherited.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    new = sys.modules.keys() - known
    own = {name for name in new if "." not in name and not _is_installed(name)}
    for name in new:
        if name.partition(".")[0] in own:
            del sys.modules[name]


def _is_installed(name: str) -> bool:
    file = getattr(sys.modules[name], "__file__", None)
    if file is None:
        return True
    path = Path(file)
    return (path.parent if path.stem != "__init__" else path.parents[1]) in _INSTALLED

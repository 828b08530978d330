"""Every number of a scenario has bounds, so that what is accepted also starts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from muster.client.availability import AVAILABILITIES
from muster.client.training.augmentations import AUGMENTATIONS
from muster.client.training.optimizers import OPTIMIZERS
from muster.common.compression import CODECS
from muster.common.config import Section
from muster.common.distributions import DISTRIBUTIONS
from muster.common.errors import ConfigError
from muster.common.plugins import Registry
from muster.common.schedules import SCHEDULES
from muster.emulator.faults.registry import FAULTS
from muster.emulator.launch import doctor
from muster.emulator.planning import server_view
from muster.emulator.scenario.enrollment import ENROLLMENTS
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import AGGREGATORS
from muster.server.knowledge.propensity import CLASSIFIERS
from muster.server.rounds.selection import SELECTIONS
from muster.tasks.models import MODELS
from muster.tasks.partitions import PARTITIONS
from muster.tasks.sources import SOURCES
from muster.tasks.tasks import TASKS
from muster.tasks.transforms import TRANSFORMS

REGISTRIES: tuple[Registry[Any], ...] = (
    TASKS, MODELS, PARTITIONS, SOURCES, TRANSFORMS, AUGMENTATIONS, OPTIMIZERS, SCHEDULES,
    DISTRIBUTIONS, ENROLLMENTS, AVAILABILITIES, CODECS, SELECTIONS, AGGREGATORS, CLASSIFIERS,
    FAULTS,
)  # fmt: skip


def sections() -> list[type[Section]]:
    """The tables of a scenario and all built-in plug-ins, with what they consist of."""
    found: list[type[Section]] = []
    waiting: list[Any] = [Scenario, *(c for r in REGISTRIES for c in r.built_in.values())]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, Section) and kind not in found:
            found.append(kind)
            waiting += [field.annotation for field in kind.model_fields.values()]
        waiting += get_args(kind)
    return found


def numbers(annotation: Any, metadata: list[Any]) -> Iterator[tuple[type, list[Any]]]:
    """The numbers in an annotation, each with all that is annotated to it."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *extra = args
        spread = [m for e in extra for m in (e.metadata if isinstance(e, FieldInfo) else [e])]
        yield from numbers(inner, metadata + spread)
    elif origin in (Union, UnionType):
        for part in args:
            yield from numbers(part, metadata)
    elif origin in (list, dict):
        for part in args:
            yield from numbers(part, [])
    elif annotation in (int, float):
        yield annotation, metadata


FIELDS = {
    f"{section.__name__}.{name}": field
    for section in sections()
    for name, field in section.model_fields.items()
    if any(numbers(field.annotation, field.metadata))
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS.keys())
def test_every_number_has_bounds(field: FieldInfo) -> None:
    for _, metadata in numbers(field.annotation, field.metadata):
        assert any(isinstance(mark, Ge | Gt) for mark in metadata), "no lower bound"
        assert any(isinstance(mark, Le | Lt) for mark in metadata), "no upper bound"


# --- what is refused -----------------------------------------------------------------------------

PLAIN = """
name = "plain"
[task]
name = "linear"
[server]
rounds = 3
[[groups]]
name = "a"
count = 2
"""


@pytest.fixture
def complaint(tmp_path: Path) -> Callable[..., str]:
    """What is said of a plain scenario with some settings; empty when it is accepted."""
    path = tmp_path / "plain.toml"
    path.write_text(PLAIN)

    def said(*settings: str) -> str:
        try:
            doctor.require(read_scenario(path, settings))
        except ConfigError as error:
            return str(error)
        return ""

    return said


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=9223372036854775808", "64 bits"),
        ("seed=-1", "seed: expected at least 0, found -1"),
        (
            "groups[0].count=100000000",
            "groups[0].count: expected at most 1,000,000, found 100000000",
        ),
        ("server.rounds=10000001", "server.rounds: expected at most 10,000,000, found 10000001"),
        ("server.rounds=100000000000000000000", "64 bits"),
        ("server.heartbeat_s=1e-9", "server.heartbeat_s: expected at least 0.01, found 1e-09"),
        ("server.minimum=3", "server.minimum: 3 is more than the 2 devices that may take part"),
        ("server={rounds=1,minimum=2,selection={kind='uniform',k=1}}", "more than the 1 devices"),
        ("server.deadline_s=1e300", "server.deadline_s: expected at most 1e+09, found 1e+300"),
        ("server.stall_s=0.5", "server.stall_s: 0.5 s are not enough for a process to start"),
        ("server.port=65536", "server.port: expected at most 65,535, found 65536"),
        ("server.port=-1", "server.port: expected at least 0, found -1"),
        ("training.batch_size=10000000000", "training.batch_size: expected a whole number from 1"),
        ("training.local_epochs=1000000000", "training.local_epochs: expected at most 1,000,000"),
        ("training.learning_rate=1e30", "training.learning_rate: expected a number from 1e-12"),
        ("groups[0].devices_per_process=1000000000", "devices_per_process: expected at most"),
        ("clock={kind='wall',round_s=1e9}", "clock.round_s: expected at most 604800"),
        ("groups[0].link.down='1 bit/s'", "groups[0].link.down: expected at least 1000, found"),
        ("groups[0].link.rtt='60 s'", "groups[0].link.rtt: expected at most 30, found '60 s'"),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_its_key(
    complaint: Callable[..., str], setting: str, said: str
) -> None:
    assert said in complaint(setting)


def test_the_devices_of_all_groups_have_a_limit_together(complaint: Callable[..., str]) -> None:
    group = "{name='b',count=999999}"
    assert "groups: 1,000,001 devices in all, expected at most 1,000,000" in complaint(
        "groups=[{name='a',count=2}," + group + "]"
    )


def test_a_run_has_fewer_devices_than_a_plan(
    complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_view, "population", pytest.fail)
    said = complaint("groups[0].count=100001")
    assert "100,001 devices in all, expected at most 100,000 in a run; `muster plan`" in said


def test_a_population_of_a_hundred_million_is_refused_at_once(
    complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_view, "population", pytest.fail)
    assert complaint("groups[0].count=100000000")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("clock={kind='wall',round_s=0.01}", ""),
        (
            "clock={kind='scaled',round_s=60,scale=6001}",
            "clock.round_s: devices would simulate 100",
        ),
        ("groups[0].availability={kind='markov',mean_up_s=0.1,mean_down_s=0.02}", ""),
        (
            "groups[0].availability={kind='markov',mean_up_s=0.05,mean_down_s=0.02}",
            "groups[0].availability: mean_up_s + mean_down_s = 0.07 s: a device would switch",
        ),
    ],
)
def test_life_is_not_faster_than_it_can_be_computed(
    complaint: Callable[..., str], setting: str, said: str
) -> None:
    found = complaint(setting, "server.deadline_s=5.0")
    assert said in found if said else not found

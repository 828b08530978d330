"""What the nursery makes once, so that no forked process makes it in memory of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.common.own_code import use
from muster.emulator import run

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

CODE = '''
"""A network that notes, whenever a forked process uses it, the validators built since the fork."""

import os
from pathlib import Path

from torch import nn

from muster.common.config import Section

at_fork = None


def built(kind=Section):
    for each in kind.__subclasses__():
        if each.__pydantic_complete__:
            yield each.__qualname__
        yield from built(each)


def fork():
    global at_fork
    at_fork = set(built())


os.register_at_fork(before=fork)


class Noting(nn.Identity):
    def forward(self, x):
        if at_fork is not None:
            (Path(FOLDER) / str(os.getpid())).write_text("\\n".join(set(built()) - at_fork))
        return x


def network(inputs, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs[0] * inputs[1], outputs), Noting())
'''

PLAIN: dict[str, Any] = {}
RICH: dict[str, Any] = {
    "device": {"profile": "phone"},
    "availability": {"kind": "bernoulli", "probability": 0.9},
    "covariates": {"x": {"charge": "battery"}},
    "link": {"compression": "top-k"},
    "mask": {"kind": "random"},
}


@pytest.mark.parametrize("group", [PLAIN, RICH], ids=["plain", "rich"])
def test_no_process_of_devices_builds_a_validator(
    scenario: MakeScenario, tmp_path: Path, group: dict[str, Any]
) -> None:
    (tmp_path / "code").mkdir()
    notes = tmp_path / "notes"
    notes.mkdir()
    (tmp_path / "code/noting.py").write_text(CODE.replace("FOLDER", repr(str(notes))))
    use(str(tmp_path / "code"))
    asked = scenario(
        modules=str(tmp_path / "code"),
        task={"name": "digits", "model": {"kind": "noting:network"}},
        training={"local_steps": 1},
        server={"rounds": 2},
        groups=[{"name": "all", "count": 3, **group}],
    )
    assert run(asked, out=tmp_path / "run", report=False).status == "completed"
    found = [note.read_text().split() for note in notes.iterdir()]
    assert len(found) >= 4
    assert sum(map(bool, found)) <= 1, found  # of the evaluation, of which a run has one

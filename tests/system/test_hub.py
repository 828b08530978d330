"""Runs on data sets of the Hugging Face hub, which the package `datasets` downloads from a hub in
miniature on this machine."""

import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from tests.fake_hub import FakeHub, Files, served

pytest.importorskip("datasets", reason="needs the extra 'datasets'")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = "from muster.cli.entry import main; main()"
READ = """
import json, sys
from pathlib import Path
from muster.common.errors import ConfigError
from muster.emulator.scenario.reading import read_scenario

said = []
for path in sys.argv[1:]:
    try:
        said.append(read_scenario(Path(path)).task.source.revision)
    except ConfigError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def table(seed: int, rows: int = 120) -> bytes:
    x = np.random.default_rng(seed).normal(size=(rows, 2))
    buffer = io.BytesIO()
    columns = {"a": x[:, 0], "b": x[:, 1], "label": (x.sum(axis=1) > 0).astype(int)}
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def points(seed: int, default: bool = True) -> Files:
    """A data set of two configurations, of which `small` may be the default."""
    configs = [
        {
            "config_name": name,
            "default": default and name == "small",
            "data_files": [
                {"split": split, "path": f"{name}/{split}.parquet"} for split in ("train", "test")
            ],
        }
        for name in ("small", "large")
    ]
    files = {"README.md": f"---\n{json.dumps({'configs': configs})}\n---\n".encode()}
    for at, (name, split) in enumerate(
        (name, split) for name in ("small", "large") for split in ("train", "test")
    ):
        files[f"{name}/{split}.parquet"] = table(10 * seed + at)
    return files


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    commits = {
        "lab/points": [points(1)],
        "lab/several": [points(2, default=False)],
        "lab/program": [{"program.py": b"class Program: pass"}],
        "lab/gated": [points(3)],
        "lab/texts": [{"notes.md": b"none"}],
    }
    with served(FakeHub(commits, gated={"lab/gated"})) as found:
        yield found


class Person:
    """A person with a folder, and with a cache of their own."""

    def __init__(self, hub: FakeHub, folder: Path) -> None:
        self.folder = folder
        mine = {name: v for name, v in os.environ.items() if not name.startswith("HF_")}
        self.environment = {
            **mine,
            "HF_HOME": str(folder / "cache"),
            "HF_ENDPOINT": hub.url,
            "NO_PROXY": "127.0.0.1",
        }

    def scenario(self, name: str, **source: str) -> str:
        values = {
            "name": "hub",
            "task": {
                "name": "own",
                "model": "softmax",
                "source": {"kind": "datasets", "label": "label", **source},
            },
            "server": {"rounds": 2},
            "training": {"learning_rate": 0.1},
            "groups": [{"name": "a", "count": 3, "devices_per_process": 3}],
        }
        (self.folder / f"{name}.toml").write_text(tomli_w.dumps(values))
        return f"{name}.toml"

    def python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def muster(self, *arguments: str, status: int = 0) -> str:
        """The messages of a command, which must end with this status."""
        done = self.python(MUSTER, *arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def read(self, *scenarios: str) -> list[str]:
        """The revision with which a command reads each scenario, or why it refuses it."""
        done = self.python(READ, *scenarios)
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(done.stdout.splitlines()[-1])
        return found

    def source(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = tomllib.loads((self.folder / run / "scenario.toml").read_text())
        source: dict[str, Any] = found["task"]["source"]
        return source

    def model(self, run: str) -> str:
        return str(json.loads((self.folder / run / "summary.json").read_text())["model_sha256"])


@pytest.fixture
def person(hub: FakeHub, tmp_path: Path) -> Person:
    return Person(hub, tmp_path)


def test_a_data_set_is_downloaded_once_and_its_run_keeps_the_revision(
    hub: FakeHub, person: Person
) -> None:
    newest = person.scenario("newest", hub="lab/points")
    first = hub.commit("lab/points")
    person.muster("run", newest, "--out", "one")
    assert sorted(hub.read) == ["README.md", "small/test.parquet", "small/train.parquet"]
    assert person.source("one")["revision"] == first

    hub.commits["lab/points"].append(points(4))
    second = hub.commit("lab/points")
    assert person.read(newest) == [second] != [first]
    person.muster("run", "--resume", "one", "--rounds", "3")

    # Another person gets the older commit by its name, and the same model.
    shutil.rmtree(person.folder / "cache")
    pinned = person.scenario("pinned", hub="lab/points", revision=first)
    person.muster("run", pinned, "--out", "again", "--set", "server.rounds=3")
    assert person.model("again") == person.model("one")

    # Without the hub, the cache has what is pinned, and what was loaded last.
    person.environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    hub.read.clear()
    missing = person.scenario("missing", hub="lab/points", revision=second)
    *found, why = person.read(newest, pinned, missing)
    assert found == [first, first]
    assert f"expected revision {second}, found only revision {first} in the cache" in why
    assert not hub.read


def test_a_run_goes_on_only_with_the_data_set_it_began_with(hub: FakeHub, person: Person) -> None:
    person.muster("run", person.scenario("plain", hub="lab/points"), "--out", "run")
    shutil.rmtree(person.folder / "cache")
    person.muster("run", "--resume", "run", "--rounds", "3")  # which downloads it again
    assert "agrees" in person.muster("audit", "run")

    copy = Path(person.source("run")["path"])
    [file] = copy.glob("train/*.arrow")
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    refused = person.muster("run", "--resume", "run", "--rounds", "4", status=2)
    assert f"{copy}, a file that the scenario names, has changed" in refused
    assert str(copy) in person.muster("audit", "run", status=1)


def test_what_cannot_be_downloaded_is_refused_with_what_to_do(hub: FakeHub, person: Person) -> None:
    wrong = {
        "has no data set lab/point, or it is private; look for": {"hub": "lab/point"},
        "lab/gated is gated: accept its terms at": {"hub": "lab/gated"},
        "program, program.py, which the package datasets no longer runs": {"hub": "lab/program"},
        "task.source.configuration, found none; there are: small, large": {"hub": "lab/several"},
        "found medium; there are: small, large": {"hub": "lab/points", "configuration": "medium"},
        "expected a revision 'v1', found main": {"hub": "lab/points", "revision": "v1"},
        "expected a data set that the package datasets loads": {"hub": "lab/texts"},
    }
    names = [person.scenario(str(at), **source) for at, source in enumerate(wrong.values())]
    for why, said in zip(wrong, person.read(*names), strict=True):
        assert why in said
        assert "\n" not in said

    split = person.scenario("split", hub="lab/points", split="training")
    said = person.muster("run", split, "--out", "none", status=2)
    assert "lab/points: expected a split 'training', found train, test" in said

    person.environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(person.folder / "empty")}
    said = person.muster("run", person.scenario("a", hub="lab/points"), "--out", "none", status=2)
    assert "offline mode is enabled" in said
    assert "the cache of Hugging Face does not have it; connect once, or save it" in said
    assert not (person.folder / "none").exists()

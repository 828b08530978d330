"""What CI says of its tests: which no run played and why, and how long each file took."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.outcomes import Allowed, Outcomes, read, unexplained

ROOT = Path(__file__).parents[2]
ALLOWED = Allowed(
    always={": this machine has no GPU$": "no GPU there"}, without={": containers: ": "docker"}
)


def outcomes(*lines: tuple[str, str | None]) -> Outcomes:
    written = [{"test": test, "seconds": 0.0, "skipped": reason} for test, reason in lines]
    return read(map(json.dumps, written))


@pytest.mark.parametrize(
    ("lines", "missing", "found"),
    [
        ([("a.py::x", "no flwr")], [], {"a.py::x": {"no flwr"}}),
        ([("a.py::x", "no flwr"), ("a.py::x", None)], [], {}),
        ([("a.py", "no flwr")], [], {"a.py": {"no flwr"}}),
        ([("a.py", "no flwr"), ("a.py::x", None)], [], {}),
        ([("a.py::x", "this machine has no GPU")], [], {}),
        ([("a.py::x", "containers: make it")], [], {"a.py::x": {"containers: make it"}}),
        ([("a.py::x", "containers: make it")], ["docker"], {}),
    ],
)
def test_what_no_run_played_needs_a_reason_of_the_list(
    lines: list[tuple[str, str | None]], missing: list[str], found: dict[str, set[str]]
) -> None:
    assert unexplained(outcomes(*lines), ALLOWED, missing) == found


def test_the_list_has_a_reason_for_every_expression() -> None:
    listed = Allowed.listed()
    assert all(reason.strip() for reason in listed.always.values())
    assert set(listed.without.values()) == {"docker", "browser", "extras"}


MODULES = {
    "test_whole.py": "import pytest\npytest.importorskip('no_such_library')\n",
    "test_parts.py": (
        "import pytest\n"
        "def test_played(): pass\n"
        "def test_failed(): assert False\n"
        "@pytest.mark.skip(reason='no GPU')\ndef test_skipped(): pass\n"
        "@pytest.mark.xfail\ndef test_expected_to_fail(): assert False\n"
    ),
}
RUN = (
    "import sys, pathlib, pytest; from tests.outcomes import Recorder; "
    "pytest.main(['-c', '/dev/null', '--rootdir', sys.argv[1], sys.argv[1]], "
    "plugins=[Recorder(pathlib.Path(sys.argv[2]))])"
)


def test_a_run_records_what_it_played_and_what_it_skipped(tmp_path: Path) -> None:
    folder, file = tmp_path / "modules", tmp_path / "outcomes"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "-c", RUN, folder, file], cwd=ROOT, check=True)
    found = read(file.read_text().splitlines())
    names = ("played", "failed", "expected_to_fail")
    assert found.played == {f"test_parts.py::test_{name}" for name in names}
    absent = "could not import 'no_such_library': No module named 'no_such_library'"
    assert found.never_played() == {
        "test_parts.py::test_skipped": {"no GPU"},
        "test_whole.py": {absent},
    }
    assert found.seconds["test_parts.py"] > found.seconds["test_whole.py"] == 0


NESTED = """
import os, subprocess, sys

def test_that_runs_pytest(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text("def test_inner(): pass")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null"]
    subprocess.run([*command, inner], check=True)
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_a_run_does_not_record_the_tests_of_runs_that_it_starts(
    tmp_path: Path, processes: int
) -> None:
    (tmp_path / "test_outer.py").write_text(NESTED)
    file = tmp_path / "outcomes"
    done = _pytest_in(tmp_path, f"--numprocesses={processes}", MUSTER_OUTCOMES=str(file))
    assert done.returncode == 0, done.stdout
    assert read(file.read_text().splitlines()).played == {"test_outer.py::test_that_runs_pytest"}


LONG = """
import pytest
pytestmark = pytest.mark.soak
@pytest.mark.skip(reason="containers: make test-docker")
def test_of_containers(): pass
def test_of_processes(): pass
"""


@pytest.mark.parametrize(("asked", "status"), [("0", 0), ("1", pytest.ExitCode.USAGE_ERROR)])
def test_no_long_test_is_skipped_in_silence_when_long_ones_are_asked_for(
    tmp_path: Path, asked: str, status: int
) -> None:
    (tmp_path / "test_long.py").write_text(LONG)
    done = _pytest_in(tmp_path, MUSTER_SOAK=asked)
    assert done.returncode == status, done.stdout
    said = "test_of_containers is a soak test, but would be skipped: containers: make test-docker"
    assert (said in done.stderr) == (asked == "1")


SAMPLED = """
import pytest
@pytest.mark.sampled(2)
@pytest.mark.parametrize("chosen", ["first", "second", "third", "fourth", "fifth"])
def test_sets(chosen): pass
"""


@pytest.mark.parametrize(
    ("asked", "options", "played"),
    [
        ("0", (), ["first", "third"]),
        ("0", ("-k", "third or fourth"), ["third"]),
        ("1", (), ["first", "second", "third", "fourth", "fifth"]),
    ],
)
def test_a_sampled_test_is_played_with_few_of_its_sets_unless_long_ones_are_asked_for(
    tmp_path: Path, asked: str, options: tuple[str, ...], played: list[str]
) -> None:
    (tmp_path / "test_sampled.py").write_text(SAMPLED)
    done = _pytest_in(tmp_path, "-v", *options, MUSTER_SOAK=asked)
    assert re.findall(r"test_sets\[(\w+)\] PASSED", done.stdout) == played, done.stdout


def _pytest_in(folder: Path, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the tests of a folder with the hooks of this project's tests."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null"]
    return subprocess.run(
        [*command, "--rootdir", str(folder), *options, str(folder)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )

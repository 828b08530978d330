"""The pytest plug-in, in sessions of its own."""

import subprocess
import sys
from pathlib import Path

from muster.testing import LAWS

HEAVY = ("torch", "hypothesis", "numpy", "pydantic", "grpc", "muster.emulator", "muster.server")


def session(folder: Path, test: str, *arguments: str) -> str:
    """The output of a pytest session with one test file."""
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-rs", *arguments]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    return ended.stdout + ended.stderr


def test_the_plugin_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    test = (
        "import sys\n"
        "def test_nothing_is_imported():\n"
        "    assert 'muster.testing.plugin' in sys.modules\n"
        f"    assert not sys.modules.keys() & set({HEAVY!r})\n"
    )
    output = session(tmp_path, test)
    assert "1 passed" in output, output


def test_importing_muster_imports_neither_pytest_nor_hypothesis() -> None:
    program = (
        "import sys, muster.cli.entry, muster.server.program\n"
        "import muster.client.processes.early_imports\n"
        "assert not sys.modules.keys() & {'pytest', 'hypothesis'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_real_fleet_is_marked(tmp_path: Path) -> None:
    test = (
        "def test_real(real_fleet): assert False, 'not reached'\n"
        "def test_simulated(fleet): assert fleet.run\n"
    )
    output = session(tmp_path, test, "-m", "not real_fleet", "--strict-markers")
    assert "1 passed, 1 deselected" in output, output


def test_a_broken_law_is_told_with_its_name_and_the_example(tmp_path: Path) -> None:
    test = (
        "import math\n"
        "from muster.server.aggregators.fedavg import FedAvg\n"
        "from muster.testing import RuleLaws\n"
        "class SquareRoot(FedAvg):\n"
        "    def weight(self, contribution, state):\n"
        "        return math.sqrt(contribution.examples)\n"
        "class TestBroken(RuleLaws):\n"
        "    rule = SquareRoot()\n"
        "class TestDeclared(RuleLaws):\n"
        "    rule = SquareRoot()\n"
        "    exceptions = {'splitting': 'two halves count for more than the whole'}\n"
    )
    output = session(tmp_path, test, "-q")
    tests = len(LAWS) + 1
    assert f"1 failed, {2 * tests - 2} passed, 1 skipped" in output, output
    assert "TestBroken.test_a_client_that_is_split_counts_as_before" in output
    assert "when split, point 1 is the model" in output
    assert "MadeUpCourse(devices=[MadeUpDevice(" in output
    assert "splitting: two halves count for more than the whole" in output

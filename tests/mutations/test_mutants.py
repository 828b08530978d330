"""Every defect of `mutants.toml` fails the test that the table names."""

import os
import subprocess
import sys

import pytest
from tests.mutations.applied import MUTANT, ROOT, mutants

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


SEEDS = "tests/simulation/test_seeds.py"
"""Its test is too long for `make test`. All others are played as there."""


@pytest.mark.parametrize("name", mutants())
def test_a_mutant_is_found(name: str) -> None:
    test = mutants()[name].test
    plugins = ["-p", "tests.mutations.applied", "-p", "no:cacheprovider"]
    played = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, test],
        cwd=ROOT,
        env={**os.environ, MUTANT: name, "MUSTER_SOAK": str(int(test.startswith(SEEDS)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == pytest.ExitCode.TESTS_FAILED, played.stdout + played.stderr
    assert "1 failed" in played.stdout.splitlines()[-1]

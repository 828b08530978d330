"""Completion in the shell, as docs/commands.md describes it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/commands.md"
PROGRAM = "import sys; sys.argv[0] = 'muster'; from muster.cli.entry import main; main()"


def asked(instruction: str, **variables: str) -> str:
    """What `muster` prints if the shell asks it for `instruction`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "_MUSTER_COMPLETE": instruction, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def completed(line: str) -> list[str]:
    """The completions of a line in bash, of which the last word has begun."""
    place = str(len(line.split(" ")) - 1)
    found = asked("bash_complete", COMP_WORDS=line, COMP_CWORD=place)
    return [row.partition(",")[2] for row in found.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_names_the_script_of_every_shell(shell: str) -> None:
    assert f"_MUSTER_COMPLETE={shell}_source muster" in PAGE.read_text(encoding="utf-8")
    script = asked(f"{shell}_source")
    assert f"_MUSTER_COMPLETE={shell}_complete" in script
    assert re.search(r"\bmuster\b", script)


def test_commands_options_and_their_values_are_completed() -> None:
    assert sorted(completed("muster st")) == ["status", "stop", "study"]
    assert completed("muster export --to t") == ["tensorboard"]
    assert completed("muster run --qu") == ["--quiet"]
    assert completed("muster init --example faults/p") == [
        "faults/partition", "faults/poison", "faults/poor_links"
    ]  # fmt: skip


def test_kinds_of_faults_and_names_of_studies_are_completed() -> None:
    assert completed("muster inject runs/latest pa") == ["partition", "pause"]
    assert not any(completed("muster inject runs/latest slo"))  # it acts inside devices
    assert completed("muster study stal") == ["staleness"]

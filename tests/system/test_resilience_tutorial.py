"""The tutorial on resilience: its files are those of the examples, and its commands print what it
shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial-resilience.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples/resilience"
MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]

SHOWN = re.findall(
    r"^```sh\nmuster ([^\n]*); echo \$\?\n```\n\n```text\n(.*?)^```$", PAGE, re.M | re.S
)
TIMED = re.compile(r"^  (rounds|traffic) .*", re.MULTILINE)
"""Lines that differ from run to run: times, and models that were sent again."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_shows_the_files_as_they_are() -> None:
    names = ["outage", "partition", "churn", "poison"]
    files = [(EXAMPLES / f"{name}.toml").read_text(encoding="utf-8") for name in names]
    assert blocks("toml") == files
    assert sorted(path.stem for path in EXAMPLES.glob("*.toml")) == sorted(names)
    assert blocks("python")[0] == (EXAMPLES / "my_rules.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "text"), SHOWN, ids=[command.split()[4] for command, _ in SHOWN]
)
def test_a_command_prints_what_the_page_shows(command: str, text: str, tmp_path: Path) -> None:
    words = command.replace("examples/", f"{ROOT}/examples/").split()
    words[words.index("--out") + 1] = str(tmp_path / "run")
    done = subprocess.run([*MUSTER, *words, "--quiet"], capture_output=True, text=True, check=False)
    printed = done.stdout.partition("\n\n  report")[0]
    *shown, status = text.strip().splitlines()
    assert done.returncode == int(status), done.stderr
    rounded = [_rounded(TIMED.sub("", each)) for each in ("\n".join(shown), printed)]
    assert rounded[0] == rounded[1]


def test_the_page_runs_each_example_and_one_that_fails() -> None:
    assert len(SHOWN) == 6
    assert [text.strip().splitlines()[-1] for _, text in SHOWN] == ["0", "0", "0", "1", "0", "1"]


def test_the_test_in_python_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    exec(compile(blocks("python")[1], "tutorial", "exec"), scope)
    test = scope["test_the_mean_survives_an_outage"]
    assert callable(test)
    test()


def _rounded(text: str) -> str:
    """The text with two digits of fractions and percentages, because the last digits of a loss
    depend on the processor; and without the round in which a fault of a second was applied."""
    text = re.sub(r"(after every fault was applied: .*) in round \d+", r"\1", text)
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.2g}", text)

"""Options of commands that take one value."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.commands import main


@pytest.mark.parametrize("command", ["report", "compare"])
def test_two_kinds_of_figures_are_refused(command: str, tmp_path: Path) -> None:
    """Click alone would keep the last one and say nothing."""
    more = ["--figures", "svg", "--figures", "pdf"]
    done = CliRunner().invoke(main, [command, str(tmp_path), *more])
    assert done.exit_code == 2
    assert "expected one, found svg and pdf; repeat the command" in done.output

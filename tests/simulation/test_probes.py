"""The probes of the simulation."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from muster.simulation.observed import JOURNAL, LEDGER
from muster.simulation.probes import probes, with_probes
from muster.simulation.probes_page import names, page, summary


@pytest.mark.parametrize("module", probes())
def test_every_statement_of_a_probe_is_once_in_its_module(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source, named = Path(spec.origin).read_text(encoding="utf-8"), probes()[module]
    found = with_probes(source, named)
    compile(found, spec.origin, "exec")
    assert len(found.splitlines()) == len(source.splitlines()) + len(named)


def test_every_probe_has_a_name_of_its_own() -> None:
    assert len(set(names())) == len(names()) >= 150
    assert set(names()) >= {*LEDGER, *JOURNAL}


def test_a_probe_is_before_the_last_line_of_its_statement() -> None:
    source = "if a:\n    return 1\nif b:\n    return 1\n"
    found = with_probes(source, {"b": "if b:\nreturn 1"})
    assert found == 'if a:\n    return 1\nif b:\n    _reached("b")\n    return 1\n'


@pytest.mark.parametrize("statement", ["return 1", "return 2"])
def test_a_statement_that_is_not_once_in_the_source_is_refused(statement: str) -> None:
    with pytest.raises(ValueError, match="expected one"):
        with_probes("if a:\n    return 1\nif b:\n    return 1\n", {"name": statement})


def test_what_was_not_reached_is_named() -> None:
    first, *rest = names()
    times = Counter(dict.fromkeys(rest, 7))
    assert summary(times, names()).endswith(f"; not reached: {first}")
    assert f"| {first} | 0 |" in page(times, 7)


def test_probes_of_rare_interleavings_are_reached() -> None:
    """Random histories seldom reach them, so each has a history of its own."""
    played = subprocess.run(
        [sys.executable, "-m", "tests.simulation.reaching"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(played.stdout)
    assert found.keys() <= set(names())
    assert len(found) >= 7
    assert found == {name: [True, []] for name in found}

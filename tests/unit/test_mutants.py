"""The table of mutants is true: each is one change of the code as it is, and its test exists. That
the tests fail with them is what `make mutations` checks."""

import ast

import pytest
from tests.mutations.applied import ROOT, Mutant, mutants

from muster.server.aggregators import BUILT_IN, Combining, Recalling, Remembering, Stepping
from muster.server.rounds.modes import MODES

IN_MAKE_TEST = ("tests/unit/", "tests/property/", "tests/simulation/", "tests/integration/")


@pytest.mark.parametrize("name", mutants())
def test_a_mutant_changes_one_place_of_the_code_as_it_is(name: str) -> None:
    mutant = mutants()[name]
    assert mutant.source.count(mutant.before) == 1, f"{mutant.file} has changed; change {name} too"
    assert mutant.before != mutant.after
    mutant.code()  # it compiles


@pytest.mark.parametrize("name", mutants())
def test_the_test_that_finds_a_mutant_exists(name: str) -> None:
    file, _, rest = mutants()[name].test.partition("::")
    assert file.startswith(IN_MAKE_TEST)
    found = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    functions = {
        node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert rest.partition("[")[0] in functions


def about(mutant: Mutant) -> set[str]:
    return set(mutant.about.split(", "))


def test_every_family_of_rules_every_mode_and_restarts_have_mutants() -> None:
    named = set[str]().union(*map(about, mutants().values()))
    for base in (Combining, Recalling, Remembering, Stepping):
        assert named & {kind for kind, rule in BUILT_IN.items() if issubclass(rule, base)}, base
    assert named & {kind for kind, rule in BUILT_IN.items() if rule.masks}
    assert named >= MODES.built_in.keys() | {"restart"}
    assert len(mutants()) >= 30

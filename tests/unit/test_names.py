"""No rule and no mode is named outside its own folder: whatever asks for names leaves out rules and
modes of users."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from muster.server.aggregators import BUILT_IN as RULES
from muster.server.rounds.modes import BUILT_IN as MODES

ROOT = Path(__file__).parents[2]
ROOTS = ("common", "server", "client", "emulator")

FOLDERS: Mapping[str, Mapping[str, type]] = {
    "server/muster/server/aggregators": RULES,
    "server/muster/server/rounds/modes": MODES,
}
"""The names that each folder may say, because what they name lies in it."""

WORDS = {"median", "weighted", "flower"}
"""Names that also say something else: a statistic, a selection and a stage of weights, and a task.
They count only if something is compared with them."""

ALLOWED = {
    "emulator/muster/studies": "a study is about the rules and modes that it compares",
    "emulator/muster/laboratory/league": "the league plays a list of rules against one of them",
    "emulator/muster/laboratory/worst_case/corrections.py": "the rules of the five papers",
    "emulator/muster/laboratory/worst_case/floor.py": "rules beside the least error of all rules",
    "emulator/muster/simulation": "fleets that the simulation plays, one for each kind of trouble",
    "emulator/muster/chaos": "fleets are drawn from a list, so that a seed gives the same one",
    "emulator/muster/emulator/run_audit": "the defaults of old run folders",
    "server/muster/server/settings/server.py": "the defaults of server.aggregator and server.mode",
}


def named(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """Yield the names that code says: in literals and in imports."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    compared = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for inner in ast.walk(node)
        if "kind" in ast.unparse(node)
    }
    modules = {module.__module__ for folder in FOLDERS.values() for module in folder.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value not in names or id(node) in texts:
                continue
            if node.value not in WORDS or id(node) in compared:
                yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            yield f"line {node.lineno}: {node.module}"


def naming() -> Iterator[tuple[str, str]]:
    """Yield the places in the product that name a rule or a mode outside its folder."""
    for root in ROOTS:
        for path in sorted((ROOT / root / "muster").rglob("*.py")):
            place = str(path.relative_to(ROOT))
            names = {name for folder, own in FOLDERS.items() for name in own if folder not in place}
            inside = any(place.startswith(folder) for folder in FOLDERS)
            for said in named(ast.parse(path.read_text(encoding="utf-8")), names):
                if not (inside and "muster.server" in said):  # its files import each other
                    yield place, said


PLACES = list(naming())


def test_no_rule_and_no_mode_is_named_outside_its_folder() -> None:
    found = [
        f"{place}, {said}" for place, said in PLACES if not any(map(place.startswith, ALLOWED))
    ]
    assert not found, (
        "these places name a rule or a mode, and so leave out those of users; ask the rule or the "
        f"mode instead (a method of its contract), or enter the place in ALLOWED: {found}"
    )


@pytest.mark.parametrize("allowed", ALLOWED)
def test_every_allowed_place_still_names_one(allowed: str) -> None:
    assert any(place.startswith(allowed) for place, _ in PLACES), "take it out of ALLOWED"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('if mode.kind == "buffered": pass', True),
        ('if rule["kind"] in ("median", "krum"): pass', True),
        ('if rule.kind == "median": pass', True),
        ('print("median")', False),
        ('_LIST = ["fedavg"]', True),
        ('"""fedavg"""', False),
        ("from muster.server.aggregators.krum import Krum", True),
        ("from muster.server.aggregators import Aggregator", False),
    ],
)
def test_what_counts_as_a_name(code: str, found: bool) -> None:
    assert bool(list(named(ast.parse(code), {*RULES, *MODES}))) == found

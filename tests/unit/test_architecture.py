"""What the parts may know of each other, where import-linter cannot see it."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.common import errors
from muster.common.exchange import Decision, Outcome, Reason
from muster.server.rpc.service import STATUS
from muster.v1 import fleet_pb2 as pb

ROOT = Path(__file__).parents[2]
ROOTS = ("proto", "common", "server", "client", "emulator")
EXAMPLE = ROOT / "examples/digits.toml"
SLOW = ("torch", "pandas", "matplotlib", "sklearn", "scipy", "cvxpy")


def loaded(program: str, modules: Iterable[str] = SLOW) -> set[str]:
    """Which of `modules` an interpreter has imported after `program`."""
    program += f"; import sys; print(*sys.modules.keys() & set({tuple(modules)!r}))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.splitlines()[-1].split())


def test_the_server_imports_neither_torch_nor_what_opens_tasks() -> None:
    unwanted = ("torch", "pandas", "matplotlib", "muster.tasks.tasks")
    assert not loaded("import muster.server.__main__", unwanted)


def test_what_a_device_imports_before_torch_does_not_import_it() -> None:
    assert not loaded("import muster.client.processes.early_imports")


def test_the_help_of_the_command_line_imports_two_packages() -> None:
    """orjson takes a millisecond, and click is the command line; so the help takes 0.1 s."""
    program = (
        "import sys; from muster.cli.commands import main; "
        "main(['--help'], standalone_mode=False); "
        "tops = {name.partition('.')[0] for name in sys.modules}; "
        "files = {top for top in tops if 'site-packages' in str(getattr(sys.modules.get(top), "
        "'__file__', ''))}; print(*files)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(ended.stdout.splitlines()[-1].split())
    assert imported - {"_distutils_hack", "coverage"} == {"click", "orjson"}


def test_reading_a_scenario_imports_nothing_slow() -> None:
    call = f"read_scenario(Path({str(EXAMPLE)!r}))"
    imports = "from pathlib import Path; from muster.emulator.scenario.reading import read_scenario"
    assert not loaded(f"{imports}; {call}")


def test_a_run_begins_before_anything_slow_is_imported() -> None:
    begins = f"""
import contextlib
from muster.cli.commands import main
from muster.emulator.runs import running

def begin(*given, **named):
    raise SystemExit

running.run = begin
with contextlib.suppress(SystemExit):
    main(["run", {str(EXAMPLE)!r}, "--quiet"])
pass"""
    of_others = ("grpc", "google.protobuf", "yaml", "muster.server.account.ledger")
    assert not loaded(begins, (*SLOW, *of_others))


def modules() -> Mapping[str, Path]:
    """The files of all modules, by name."""
    found = {}
    for root in ROOTS:
        for path in (ROOT / root / "muster").rglob("*.py"):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """Everything that a module imports, also for types only and inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    assert len(known) > 300
    # A package imports its modules; that these take names from the packages above is no circle.
    graph = {
        name: {
            other
            for other in imported(path)
            if other in known and other != name and not name.startswith(f"{other}.")
        }
        for name, path in known.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_class_name_stands_twice() -> None:
    classes = Counter(
        node.name
        for name, path in modules().items()
        if "_pb2" not in name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(classes) > 400
    assert [name for name, count in classes.items() if count > 1] == []


def leaves(error: type[Exception]) -> Iterator[type[Exception]]:
    below = error.__subclasses__()
    for subclass in below:
        yield from leaves(subclass)
    if not below:
        yield error


def test_every_error_that_a_peer_can_cause_has_a_status() -> None:
    by_peers = set(leaves(errors.ProtocolError)) - {errors.LocalProtocolError}
    assert by_peers == {errors.RemoteProtocolError, errors.Unauthenticated, errors.Forbidden}
    assert by_peers <= STATUS.keys()


def test_an_error_with_a_status_has_no_kinds_that_lack_one() -> None:
    # The table is looked up by an error's own class.
    for error in STATUS:
        assert set(leaves(error)) <= STATUS.keys()


def test_every_error_is_in_the_tree_that_the_module_shows() -> None:
    for error in leaves(errors.MusterError):
        assert f" {error.__name__} " in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("domain", "wire"),
    [(Decision, pb.Decision), (Reason, pb.Reason), (Outcome, pb.Outcome)],
    ids=["decision", "reason", "outcome"],
)
def test_an_enum_means_the_same_on_both_sides_of_the_wire(domain: type[StrEnum], wire: Any) -> None:
    prefix = domain.__name__.upper()
    numbers = dict(wire.items())
    assert numbers.pop(f"{prefix}_UNSPECIFIED") == 0
    assert {f"{prefix}_{value.name}" for value in domain} == numbers.keys()


PUBLIC = {"_replace", "_asdict", "_fields", "_exit", "_dynamo"}
"""Names of named tuples, of `os` and of `torch` that are public although they begin with `_`."""

MUTATIONS = (ROOT / "tests/simulation/test_mutations.py", ROOT / "tests/mutations")
"""Tests that put defects into the product, for which they replace private functions."""

NAMING = {"getattr", "hasattr", "setattr", "delattr"}
"""Functions and methods that take the name of an attribute as text."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the private names of others that a module uses, with their lines: attributes of
    anything but self and cls, imports, and names as text in `setattr` and the like."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt):
            continue  # it has no line
        names: list[str] = []
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(names=imports):
                names = [each.name for each in imports]
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called)) if (
                called in NAMING
            ):
                texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
                names = [text for text in texts if isinstance(text, str)]
        for name in names:
            if is_private(name.rpartition(".")[2]):
                yield node.lineno, name


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ledger._db.execute('x')", ["_db"]),
        ("from muster.client.training.gradients import _only_layer", ["_only_layer"]),
        ("patch.setattr('muster.client._name', 1)", ["muster.client._name"]),
        ("patch.setattr(workers, '_start', 1)", ["_start"]),
        ("getattr(workers, '_start')", ["_start"]),
        ("self._db, cls._db, row._replace(a=1), os._exit(1), row.__class__, [].append('_a')", []),
    ],
)  # fmt: skip
def test_uses_of_private_names_are_found(line: str, found: list[str]) -> None:
    assert [name for _, name in private_names(ast.parse(line))] == found


def test_tests_use_no_private_names_of_what_they_test() -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not any(path.is_relative_to(mutations) for mutations in MUTATIONS)
        for line, name in private_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert uses == [], "hand in what the test needs, or make it public, or test it from outside"


CHANNELS = re.compile(r"(?<!open_blocking_)(?<!open_)\b(in)?secure_channel\(")


def test_every_channel_is_opened_by_the_one_place_that_keeps_it_from_proxies() -> None:
    """`muster.wire.connections.calls`; the stranger of one test has no certificate."""
    found = {
        path.relative_to(ROOT).as_posix()
        for root in (*ROOTS, "tests", "benchmarks")
        for path in (ROOT / root).rglob("*.py")
        if CHANNELS.search(path.read_text())
    }
    stranger = "tests/integration/test_identities.py"
    assert found == {"proto/muster/wire/connections/calls.py", stranger}


def test_no_sql_numbers_its_placeholders() -> None:
    """Python 3.12.3 warns of `?1` where a sequence is given, and other versions do not."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for root in ROOTS
        for path in (ROOT / root).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"[=( ]\?\d", node.value)
    ]
    assert found == []


STARTS = re.compile("process|program|child|command|reading", re.IGNORECASE)


def program_names(tree: ast.AST, known: Collection[str]) -> Iterator[str]:
    """The modules that a file starts as programs: what follows "-m", what begins a list, what has a
    name of its own, and what is given to a call whose name speaks of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts, starts = node.args, bool(STARTS.search(ast.unparse(node.func)))
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts, starts = node.elts, False
        elif isinstance(node, ast.Assign):
            parts, starts = [node.value], getattr(node.value, "value", None) in known
        else:
            continue
        names = [part.value if isinstance(part, ast.Constant) else "" for part in parts]
        first = "-m" if isinstance(node, ast.List) else ""
        for before, name in pairwise([first, *names]):
            if str(name).startswith("muster.") and (starts or before == "-m"):
                yield str(name)


def test_every_module_that_is_started_as_a_program_does_something() -> None:
    known = modules()
    trees = [ast.parse(path.read_text()) for path in known.values()]
    found = {name for tree in trees for name in program_names(tree, known)}
    assert {"muster.server.evaluation.process", "muster.client.processes.nursery"} <= found
    for name in found:
        path = known.get(f"{name}.__main__") or known[name]
        assert "__main__" in path.name or 'if __name__ == "__main__":' in path.read_text(), name


def test_no_data_is_committed_that_makes_every_clone_slow() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    files = [ROOT / name for name in listed if name]
    assert [path.name for path in files if path.is_file() and path.stat().st_size > 1 << 20] == []

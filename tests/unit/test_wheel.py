"""The wheel: what installing it brings."""

import email
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("proto", "common", "server", "client", "emulator")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel of this checkout. hatchling makes it without a network."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*command, str(out)], cwd=ROOT, check=True, capture_output=True)
    [made] = out.glob("*.whl")
    return ZipFile(made)


def tracked(folder: str) -> set[Path]:
    """The files of a folder, by their paths in it."""
    top = ROOT / folder
    files = {path.relative_to(top) for path in top.rglob("*") if path.is_file()}
    return {file for file in files if "__pycache__" not in file.parts}


def test_it_has_every_file_of_the_packages(wheel: ZipFile) -> None:
    expected = {f"muster/{file}" for root in ROOTS for file in tracked(f"{root}/muster")}
    assert len(expected) > 400
    assert expected <= set(wheel.namelist())


def test_it_has_the_examples(wheel: ZipFile) -> None:
    prefix = "muster/emulator/project/example_files/"
    found = {Path(n.removeprefix(prefix)) for n in wheel.namelist() if n.startswith(prefix)}
    made = Path("data/clinics.csv")  # by a command of the example
    assert found == tracked("examples") - {made}


def test_it_has_nothing_else(wheel: ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"muster", "muster_fl-0.1.0.dist-info"}


def test_its_metadata_has_what_an_index_shows(wheel: ZipFile) -> None:
    about = email.message_from_bytes(wheel.read("muster_fl-0.1.0.dist-info/METADATA"))
    assert about["Name"] == "muster-fl"
    assert about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"] == "text/markdown"
    assert "federated learning" in about["Keywords"]
    assert "Operating System :: POSIX :: Linux" in about.get_all("Classifier", [])
    assert {"flower", "testing"} <= set(about.get_all("Provides-Extra", []))

"""What a page names is there: the files of its links and paths, and the headings of its anchors."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository that match, with those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


PAGES = [page for page in tracked("*.md") if "fuzz/corpus" not in str(page)]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
FOLDERS = "benchmarks|client|common|deploy|docs|emulator|examples|proto|server|tests"
EMULATOR = "emulator/muster/emulator"
MADE = ("benchmarks/out", "deploy/components")
"""Folders that commands make: they are not in the repository."""


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def links(text: str) -> list[str]:
    """The links and pictures of a page that lead to this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    return [link for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def paths(text: str) -> list[str]:
    """The paths from the root of the repository that stand in backticks in a page."""
    return re.findall(rf"`((?:{FOLDERS})/[\w./<>*-]*\.\w+|(?:{FOLDERS})/[\w/-]+/)`", text)


OF_CODE = [
    page
    for page in PAGES
    if page.name in {"architecture.md", "rounds.md", "CONTRIBUTING.md", "HOWTO.md"}
    or page.parent.name == "decisions"
]
"""The pages that name files of the code by the end of their path, as `calls/worker`."""


def endings() -> set[str]:
    """The ends of the paths of all files of Python and of their folders, also without `muster`."""
    found = set[str]()
    for file in tracked("*.py"):
        parts = [part for part in file.relative_to(ROOT).parts if part != "muster"]
        for last in range(1, len(parts) + 1):
            found |= {"/".join(parts[first:last]) for first in range(last)}
    return found


def short_paths(text: str) -> set[str]:
    """What a page names by the end of its path, or as a module, as paths."""
    short = re.findall(r"`([a-z_]\w*(?:/\w+)+(?:\.py)?)`", text)
    modules = re.findall(r"`muster\.([a-z_]\w*(?:\.[a-z_]\w*)*)`", text)
    return {re.sub(r"/muster\b", "", path) for path in short} | {
        module.replace(".", "/") for module in modules
    }


def names_in_files(page: Path) -> list[tuple[str, Path]]:
    """The names that a page says are `in` or `of` a file of Python."""
    text = prose(page)
    linked = re.findall(r"`([A-Za-z_]+)`\s+(?:of|in)\s+\[[^\]]*\]\(([^)\s]+\.py)\)", text)
    stated = re.findall(rf"`([A-Za-z_]+)`\s+(?:of|in)\s+`((?:{FOLDERS})/[\w/]+\.py)`", text)
    return [(name, page.parent / file) for name, file in linked] + [
        (name, ROOT / file) for name, file in stated
    ]


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def exists(path: str) -> bool:
    """Whether there is such a file; `<name>` stands for any."""
    if path.startswith(MADE):
        return True
    pattern = re.sub(r"<[^>]*>", "*", path)
    return any(ROOT.glob(pattern)) or any(ROOT.glob(f"*/muster/{pattern}"))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert [link for link in links(prose(page)) if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_paths_are_those_of_files(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # It names what was there at the time.
    assert [path for path in paths(prose(page)) if not exists(path)] == []


@pytest.mark.parametrize("page", OF_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_ends_of_paths_are_those_of_code(page: Path) -> None:
    known = endings()
    named = {path for path in short_paths(prose(page)) if "_pb2" not in path}
    assert {path for path in named if not known & {path, f"{path}.py"}} == set()


@pytest.mark.parametrize("root", ["server/muster/server", "client/muster/client", EMULATOR])
def test_the_architecture_has_a_short_row_for_every_folder(root: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition(f": `{root}`\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE)
    named = {name for first, _ in rows for name in re.findall(r"`([^`]+)`", first)}
    folders = {file.parent.name for file in (ROOT / root).glob("*/__init__.py")}
    assert folders - named == set()
    assert [text for _, text in rows if len(text.split()) > 15] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_names_are_in_the_files_that_a_page_states(page: Path) -> None:
    stated = names_in_files(page)
    assert [(name, file) for name, file in stated if name not in file.read_text()] == []


def test_a_wrong_link_and_a_wrong_path_are_recognised(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](#one) [b](#two) [c](other.md)\n`server/muster/nothing.py`\n")
    assert [link for link in links(prose(page)) if not leads_somewhere(page, link)] == [
        "#two", "other.md"
    ]  # fmt: skip
    assert short_paths("`calls/no_worker` `muster.no.module`") & endings() == set()
    assert [exists(path) for path in paths(prose(page))] == [False]

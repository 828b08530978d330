"""Puts all pages of the repository, with the files to which they link, into .site/pages.

mkdocs knows only pages in one folder, and these are in many. A link to a folder without a README
becomes plain text, because a site has no list of files.
"""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / ".site/pages"

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)|<img src=\"([^\"]+)\"")


def tracked() -> list[Path]:
    """The pages of the repository, without inputs of the fuzzer."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if "/corpus/" not in name]


def stage(page: Path) -> None:
    """Copy a page, and what it shows and links to that is no page itself."""

    def follow(match: re.Match[str]) -> str:
        target = (page.parent / (match[2] or match[4])).resolve()
        if "://" in match[0] or target.suffix == ".md":
            return match[0]
        if target.is_dir():
            return match[1]
        if target.is_file():
            _copy(target)
        return match[0]

    place = PAGES / page.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(LINK.sub(follow, page.read_text(encoding="utf-8")), encoding="utf-8")


def _copy(file: Path) -> None:
    place = PAGES / file.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


if __name__ == "__main__":
    shutil.rmtree(PAGES, ignore_errors=True)
    for each in tracked():
        stage(each)

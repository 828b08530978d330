"""The manifest of a run folder: what protects each of its files, and the one check of all readers.

When a run is concluded, `seal` writes the checksums of its files into `manifest.json`. Every reader
opens a folder with `intact_folder`, and the audit lists `damaged_files`. In a folder that nobody
has concluded, the pages of the ledger and the lines of the journal have checksums of their own.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import orjson
import xxhash

from muster.common.errors import ConfigError, MusterError
from muster.common.events import Evaluated, RoundCommitted
from muster.common.files import write_atomic
from muster.common.sealed_lines import is_sealed, object_in, sealed
from muster.emulator.fleet.scenario_faults import FAULTS
from muster.emulator.records.inputs import inputs_in, scenario_digest
from muster.emulator.records.ledger_file import open_ledger, read_ledger
from muster.emulator.records.summary import MODEL, SUMMARY
from muster.emulator.run_folder.folder import (
    ADDRESS,
    JOURNAL,
    LEDGER,
    SCENARIO,
    is_free,
    run_folder,
    server_listens,
    shown,
)
from muster.server.account.journal_recovery import newest
from muster.server.account.page_sums import page_damage
from muster.server.account.run_rows import InputRow

MANIFEST = "manifest.json"


class Read(IntEnum):
    """By which readers a file is read. The larger values include the smaller ones."""

    PAGES = 1
    """By all: `muster status`, `watch`, `live`, `report`, `export`, and when a run is resumed."""

    AUDIT = 2
    """Only by the audit, or by a resumed run that finds damage in it by other means."""

    NEVER = 3
    """By nobody who says something about the run, or protected by other means."""


PROTECTION: Sequence[tuple[str, Read, str]] = (
    (MANIFEST, Read.NEVER, "its own checksum"),
    (SCENARIO, Read.NEVER, "the hash of its settings in the ledger"),
    (f"{LEDGER}-wal", Read.PAGES, "the manifest, and SQLite's checksums of its frames"),
    (f"{LEDGER}*", Read.NEVER, "the sums of its pages, in a file with a checksum of its own"),
    ("report.html", Read.NEVER, "`muster report` writes it again"),
    ("figures/*", Read.NEVER, "`muster report` writes them again"),
    ("logs/*", Read.NEVER, "for people; nothing is computed from them"),
    ("files/*", Read.NEVER, "they belong to the app"),
    (ADDRESS, Read.NEVER, "where the server listened, which means nothing after its end"),
    ("setup/lock", Read.NEVER, "it is empty"),
    ("setup/secrets/*", Read.NEVER, "the credentials, which end with the run"),
    ("*.tmp", Read.NEVER, "a file that a kill left unfinished"),
    ("setup/grafana/*", Read.NEVER, "for Grafana"),
    ("setup/prometheus*", Read.NEVER, "for Prometheus"),
    ("setup/tracking/*", Read.NEVER, "how far trackers are, which says nothing about the run"),
    ("setup/*", Read.AUDIT, "the manifest"),
    ("devices/*", Read.AUDIT, "the manifest, and a checksum of every record"),
    ("models/*", Read.AUDIT, "the manifest, and its hash in the ledger"),
    ("memory.bin", Read.AUDIT, "the manifest, and the checksum of every update in the ledger"),
    ("versions/*", Read.NEVER, "they are for people; the ledger has the hashes of versions"),
    ("best.safetensors", Read.NEVER, "it is for people; the ledger has the hashes of versions"),
    ("updates/*", Read.AUDIT, "the manifest, and the checksum of every update"),
    ("strategy/*", Read.AUDIT, "the manifest, and the checksum of every file"),
    (JOURNAL, Read.PAGES, "the manifest, and a checksum of every line"),
    (SUMMARY, Read.PAGES, "the manifest"),
    (MODEL, Read.PAGES, "the manifest"),
    (FAULTS, Read.PAGES, "the manifest, and its hash in the ledger"),
    ("population.csv", Read.PAGES, "the manifest"),
    ("plan.csv", Read.PAGES, "the manifest"),
    ("*", Read.NEVER, "muster does not read it: it is yours, or for Docker and may be edited"),
)
"""The files of a run folder, with what protects them. The first pattern that matches counts."""


class FileDamage(NamedTuple):
    """A file that is not as the run left it.

    Attributes:
        file: relative to the run folder.
        mend: what to do.
    """

    file: str
    expected: str
    found: str
    mend: str

    def sentence(self, folder: Path) -> str:
        """The difference in a sentence."""
        where = shown(folder / self.file)
        return f"{where}: expected {self.expected}, found {self.found}; {self.mend}"


def intact_folder(path: Path) -> Path:
    """The run folder at `path`, as an absolute path, after a check of what every reader reads.

    Raises:
        ConfigError: there is no run folder, or a file is not as the run left it.
        LedgerError: the run has ended, and its ledger is lost or damaged.
    """
    folder = run_folder(path)
    require_intact(folder)
    if (folder / SUMMARY).is_file() and not goes_on(folder):
        open_ledger(folder / LEDGER).close()
    return folder


def require_intact(folder: Path) -> None:
    """Check what every reader reads, unless the run goes on and its files change.

    Raises:
        ConfigError: a file is not as the run left it.
    """
    found = list(differences(folder))
    if found:
        more = f" ({len(found) - 1} more: muster audit {shown(folder)})" if found[1:] else ""
        raise ConfigError(f"{found[0].sentence(folder)}{more}")


def differences(folder: Path) -> Iterator[FileDamage]:
    """Yield what is not as it was, of all that every reader reads."""
    yield from _changed_scenario(folder)
    if not goes_on(folder):
        yield from damaged_files(folder, Read.PAGES)


def damaged_files(folder: Path, readers: Read) -> Iterator[FileDamage]:
    """Yield the files that are not as the run left them, in a folder to which nobody writes."""
    if damage := page_damage(folder / LEDGER):
        yield FileDamage(*damage)
    if is_sealed_folder(folder):
        yield from _unlike_manifest(folder, readers)
    elif has_checksums(folder):
        yield from _damaged_lines(folder)
        yield from _lost_records(folder)


def has_checksums(folder: Path) -> bool:
    """Whether the run of a folder writes checksums. An older version of muster wrote none."""
    return any(row.kind == "package" for row in _recorded(folder))


def _recorded(folder: Path) -> list[InputRow]:
    """The inputs with which a run began; none if its ledger cannot be read."""
    try:
        return inputs_in(folder)
    except MusterError:  # `page_damage` finds the damage, and a reader that needs the ledger too
        return []


def is_sealed_folder(folder: Path) -> bool:
    """Whether a folder has a manifest. An older version of muster wrote none, and a run that was
    killed or goes on has none yet."""
    return (folder / MANIFEST).is_file()


def seal(folder: Path) -> None:
    """Write the manifest of a run that has ended. Only files that can be read enter it. If there is
    one already, only the summary was written again."""
    known = _entries(folder)
    found = sorted(folder.rglob("*")) if known is None else [folder / SUMMARY]
    sums = dict(known or {})
    for path in found:
        name = path.relative_to(folder).as_posix()
        if reader_of(name) < Read.NEVER and path.is_file() and not path.is_symlink():
            with suppress(OSError):  # a container may have written it for itself alone
                if path.stat().st_size:  # an empty log of SQLite comes and goes
                    sums[name] = _checksum(path)
    write_atomic(folder / MANIFEST, sealed(orjson.dumps({"files": sums})), b"\n")


def _entries(folder: Path) -> dict[str, str] | None:
    """The checksums in a manifest, by file; None if there is none that is whole."""
    if not is_sealed_folder(folder):
        return None
    line = (folder / MANIFEST).read_bytes().rstrip(b"\n")
    files = (object_in(line) or {}).get("files") if is_sealed(line) else None
    return files if isinstance(files, dict) else None


def unseal(folder: Path) -> None:
    """Remove the manifest of a run that goes on."""
    (folder / MANIFEST).unlink(missing_ok=True)


def reader_of(name: str) -> Read:
    """By which readers a file is read, by its path below the run folder."""
    return next(readers for pattern, readers, _ in PROTECTION if fnmatchcase(name, pattern))


def goes_on(folder: Path) -> bool:
    """Whether programs of the run may be writing. A fleet in a swarm has no process here that would
    have locked its folder."""
    return not is_free(folder) or (
        not is_sealed_folder(folder) and (folder / ADDRESS).is_file() and server_listens(folder)
    )


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _unlike_manifest(folder: Path, readers: Read) -> Iterator[FileDamage]:
    advice = f"restore a copy of it, or remove {MANIFEST} to read the folder unchecked"
    if (files := _entries(folder)) is None:
        yield FileDamage(MANIFEST, "a file with its own checksum", "another", advice)
    for name, expected in (files or {}).items():
        if reader_of(name) <= readers:
            path = folder / name
            found = _checksum(path) if path.is_file() else "no such file"
            if found != expected:
                yield FileDamage(name, f"the XXH3-128 {expected}", found, advice)


def _changed_scenario(folder: Path) -> Iterator[FileDamage]:
    for row in _recorded(folder):
        if row.kind == "scenario":
            began = f"settings with the SHA-256 {row.sha256}, with which the run began"
            found = scenario_digest(folder)
            if found not in (None, row.sha256):
                yield FileDamage(SCENARIO, began, str(found), "restore it")


def _damaged_lines(folder: Path) -> Iterator[FileDamage]:
    """The lines of a journal that are not as they were written."""
    if not (folder / JOURNAL).is_file():
        return
    damaged: list[tuple[int, bytes]] = []
    with (folder / JOURNAL).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if is_sealed(line[:-1]) and object_in(line[:-1]):
                # On a full disk, a part of a line stays, and the whole line follows later.
                damaged = [(at, part) for at, part in damaged if not line.startswith(part)]
            elif line.endswith(b"\n"):  # else a kill has torn the last line
                damaged.append((number, line[:-1]))
    for number, line in damaged:
        yield FileDamage(
            JOURNAL, f"line {number} with its checksum", repr(line[:60].decode(errors="replace")),
            "resume the run, restore a copy of the file, or remove the line",
        )  # fmt: skip


def _lost_records(folder: Path) -> Iterator[FileDamage]:
    """The rounds and evaluations that the journal has and the ledger lacks, because SQLite leaves
    out the end of a damaged log."""
    for event, table, field in ((RoundCommitted, "rounds", "round"),
                                (Evaluated, "evaluations", "version")):  # fmt: skip
        told = newest(folder / JOURNAL, event, field)
        with read_ledger(folder / LEDGER) as ledger:
            query = f"SELECT coalesce(max({field}), -1) FROM {table}"
            there = ledger.execute(query).fetchone()[0]
        if there < told:
            yield FileDamage(
                LEDGER, f"the {table} up to {field} {told}, which {JOURNAL} has",
                f"{field} {there} as the newest", "restore a copy of it with its -wal and -sums",
            )  # fmt: skip

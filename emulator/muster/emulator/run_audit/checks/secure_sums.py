"""Checks of runs with secure sums: who is in them, and that nobody's update is in the folder."""

from collections.abc import Iterator, Set
from mmap import ACCESS_READ, mmap
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from muster.client.device.memory import STATE_FILE, Memory
from muster.common.exchange import Decision, Reason
from muster.common.secure.graph import LEAST, sharing_of
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.repeated_rule import formats_of_run
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_audit.vectors import key_of
from muster.server.settings.secure import Secure
from muster.server.updates.formats import UpdateFormats
from muster.server.updates.kept import SUMS, sum_name

_DEVICES = "devices"
_PIECE_BYTES = 32
_STEPS = 4
"""Steps of a sum with pads, in each of which a member sends something."""

_LEAST_BYTES = 8
"""Fewer bytes may be anywhere by chance."""


def check_members(evidence: Evidence, log: CheckLog) -> None:
    """The members of every sum have answered, and are enough to open it."""
    if (secure := evidence.secure) is None:
        log.skip("the scenario does not set server.secure")
        return
    if isinstance(config := evidence.config, str):
        log.skip(config)
        return
    formats = formats_of_run(evidence, config)
    for round in evidence.committed:
        _check_round(evidence, log, secure, formats, round)
    if secure.keep_sums:
        made = (r for r, row in evidence.committed.items() if row["outcome"] == "aggregated")
        kept = sorted(path.name for path in (evidence.folder / SUMS).glob("*"))
        log.compare(f"files in {SUMS}", [sum_name(round) for round in made], kept)


def _check_round(
    evidence: Evidence, log: CheckLog, secure: Secure, formats: UpdateFormats, round: int
) -> None:
    query = "SELECT client FROM answers WHERE round = ? AND decision = ?"
    answered = {row["client"] for row in evidence.rows(query, round, Decision.ACCEPT.value)}
    folded = evidence.folded(round)
    members = {row["client"] for row in folded}
    for client in sorted(members - answered):
        log.require(False, "member of the sum", "one that has answered", "none", round, client)
    query = "SELECT * FROM contributions WHERE round = ? AND reason = ?"
    asked = [*folded, *evidence.rows(query, round, Reason.SUM_MISSING.value)]
    for part in formats.parts([key_of(row) for row in asked]):
        here, of = sum(asked[at]["client"] in members for at in part.places), len(part.places)
        least = max(LEAST, sharing_of(of, secure.drop_out, secure.collusion).threshold)
        if here:
            expected = f"at least {least} of {of}"
            log.require(here >= least, "members of the sum", expected, here, round)
        if evidence.undisturbed and not evidence.reconnected:
            here_too = members & {asked[at]["client"] for at in part.places}
            _check_steps(evidence, log, secure, round, here_too)


def _check_steps(
    evidence: Evidence, log: CheckLog, secure: Secure, round: int, members: Set[str]
) -> None:
    """Compare what the members of a sum sent in each of its steps: as many bytes. Where a sum has
    no pads, they send no keys, shares and secrets."""
    sent = {client: list[int]() for client in sorted(members)}
    query = "SELECT * FROM main.transfers WHERE round = ? AND direction = 'up' ORDER BY rowid"
    for row in evidence.rows(query, round):
        if row["client"] in sent and row["ending"] == "complete":
            sent[row["client"]].append(row["bytes"])
    for client, steps in sent.items():
        right = next(iter(sent.values()))
        log.compare("bytes of its steps for the sum", right, steps, round, client)
        padded = len(steps) >= _STEPS
        log.compare("whether it sent keys, shares and secrets", not secure.plain, padded, round,
                    client)  # fmt: skip


def check_hidden(evidence: Evidence, log: CheckLog) -> None:
    """No file but those of the devices has the update of a device."""
    if evidence.secure is None:
        log.skip("the scenario does not set server.secure")
        return
    known = list(_known_updates(evidence.folder))
    if not known:
        log.skip("whether an update is in a file: the devices have left none to look for")
        return
    for path in sorted(evidence.folder.rglob("*")):
        name = path.relative_to(evidence.folder)
        if path.is_file() and path.stat().st_size and name.parts[0] != _DEVICES:
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                found = sorted({client for client, piece in known if data.find(piece) >= 0})
            log.compare(f"devices of which {name} has an update", [], found)


def _known_updates(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Pieces of the newest updates that devices keep, each with the device."""
    for path in sorted((folder / _DEVICES).glob(f"*/{STATE_FILE}")):
        with TemporaryDirectory(prefix="muster-audit-") as copy:  # a memory may write
            copyfile(path, Path(copy) / STATE_FILE)
            memory = Memory(Path(copy))
            records = memory.held
            memory.close()
        for record in records:
            body = bytes(record.body)
            for at in {0, len(body) // 2, max(0, len(body) - _PIECE_BYTES)}:
                piece = body[at : at + _PIECE_BYTES]
                if len(piece) >= _LEAST_BYTES and len({*piece}) > _LEAST_BYTES // 2:
                    yield path.parent.name, piece


CHECKS = (
    Check(
        "members of secure sums",
        "Only with `server.secure`: the updates in every sum are of devices that have answered, "
        "and at least as many as the threshold, and all of a sum send as many bytes in each of its "
        "steps; with `keep_sums` there is a sum for every version.",
        check_members,
    ),
    Check(
        "no update outside of devices",
        "Only with `server.secure`: no file of the run has a piece of an update that a device "
        "still keeps, but the files of the devices themselves.",
        check_hidden,
    ),
)

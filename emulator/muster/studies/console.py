"""A study on the command line: its options, and its results as text."""

import os
from collections.abc import Iterator
from pathlib import Path

from muster.common.errors import ConfigError
from muster.emulator.records.summary import clean
from muster.emulator.records.tabular import aligned
from muster.emulator.run_folder.folder import shown
from muster.simulation.workers import WorkerBackend
from muster.studies.claims import Claim
from muster.studies.outcome import Studied
from muster.studies.plan import find_study
from muster.studies.registry import STUDIES
from muster.studies.study import FIRST_SEED, SEEDS, Options
from muster.tasks.files import DATA_VARIABLE


def require_name(name: str | None) -> str:
    """Return the study's name.

    Raises:
        ConfigError: no name was given; the message lists all studies.
    """
    if name:
        return name
    there = aligned([(known, STUDIES.find(known).about) for known in sorted(STUDIES.names())])
    raise ConfigError(
        "\n".join(["expected the name of a study, or --resume DIR. There are:", *there])
    )


def options_of(
    kind: str,
    quick: bool,
    seed: int | None,
    seeds: int | None,
    data: str | None,
    backend: WorkerBackend | None,
) -> Options:
    """The options of a study, with every default filled in.

    Raises:
        ConfigError: there is no study called `kind`.
    """
    found = find_study(kind)
    data = data or os.environ.get(DATA_VARIABLE)
    return Options(
        quick=quick,
        seed=FIRST_SEED if seed is None else seed,
        seeds=seeds or (found.quick_seeds if quick else SEEDS),
        data=str(Path(data).expanduser().resolve()) if data else None,
        backend=backend or "processes",
    )


def describe(done: Studied) -> str:
    """Describe a study in lines: its claims, its problems, and where its page is."""
    from muster.studies.page import PAGE

    lines = [f"{clean(done.name)}: {done.status}"]
    lines += [f"  {clean(title)}: {_first_line(why)}" for title, why in done.problems.items()]
    if done.findings is None:
        return "\n".join([*lines, f"  in {shown(done.folder)}"])
    findings = done.findings
    for claims, what in ((findings.claims, "claims hold"), (findings.checks, "checks pass")):
        if claims:
            lines.append(f"{sum(claim.holds for claim in claims)} of {len(claims)} {what}")
            lines += [line for claim in claims for line in _lines(claim)]
    lines += [clean(note) for note in findings.notes]
    return "\n".join([*lines, "", f"  page  {shown(done.folder / PAGE)}"])


def _lines(claim: Claim) -> Iterator[str]:
    """A claim as lines: what it says, the numbers, and why it should hold."""
    from muster.studies.tables import MARKS, measured_text, seeds_text, spread_text

    yield f"  {MARKS[claim.holds]} {clean(claim.claim)}"
    spread, seeds = spread_text(claim), seeds_text(claim.seeds)
    numbers = [f"measured {measured_text(claim)}", f"expected {clean(claim.expected)}"]
    numbers += [f"interval or margin {spread}"] if spread else []
    numbers += [f"seeds {seeds}"] if seeds else []
    numbers += [f"held in {claim.rate} repetitions"] if claim.rate else []
    yield f"      {', '.join(numbers)}"
    if claim.why:
        yield f"      {clean(claim.why)}"


def _first_line(text: str) -> str:
    return clean(text.partition("\n")[0])

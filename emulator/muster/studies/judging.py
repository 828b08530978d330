"""Judges a study whose runs have ended, and writes its findings into its folder."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from muster.common.errors import RunFailed
from muster.common.files import write_atomic
from muster.studies import tables
from muster.studies.network import network_table
from muster.studies.outcome import Studied
from muster.studies.page import FIGURES, NETWORK, write_pages
from muster.studies.plan import StudyPlan
from muster.studies.rates import rates_of
from muster.studies.results import Result, Results
from muster.studies.study import Findings

CLAIMS, CHECKS = "claims.json", "checks.json"


def conclude(folder: Path, plan: StudyPlan, problems: Mapping[str, str]) -> Studied:
    """Judge the study, and write claims, figures, tables and pages.

    Args:
        problems: title of a run that failed in this session to the reason.
    """
    results = Results(
        [
            Result(planned.run, folder / planned.folder, problems.get(planned.run.title, ""))
            for planned in plan.runs
        ]
    )
    found = plan.study
    missing = {result.run.title: result.problem for result in results if not result.ended}
    status = "failed" if missing else "completed"
    try:
        findings = found.judge(results, plan.options)
    except RunFailed as error:
        # The study needs a run that has no result. The other results are still shown.
        status = "failed"
        findings = Findings([], notes=[f"The claims could not be judged. {error}"])
    if plan.options.quick and (rates := rates_of(found)) is not None:
        findings = replace(
            findings,
            claims=rates.added_to(findings.claims),
            notes=[*findings.notes, f"How often each claim held was measured in {rates.text}."],
        )
    studied = Studied(found.name, folder, status, findings, missing)
    try:
        _write(studied, plan, results)
    finally:
        results.close()
    return studied


def _write(studied: Studied, plan: StudyPlan, results: Results) -> None:
    folder, findings = studied.folder, studied.findings
    assert findings is not None
    for name, claims in ((CLAIMS, findings.claims), (CHECKS, findings.checks)):
        rows = [claim.to_json() for claim in claims]
        text = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(folder / name, f"{text}\n".encode())
    (folder / FIGURES).mkdir(exist_ok=True)
    for table in findings.tables:
        tables.write_csv(folder / f"{table.name}.csv", table.frame)
    network = network_table(results)
    tables.write_csv(folder / f"{NETWORK}.csv", network)
    write_pages(studied, plan, network)

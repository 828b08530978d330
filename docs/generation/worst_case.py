"""The table of docs/studies/worst-case.md, from the results beside it."""

from pathlib import Path

import orjson

from muster.laboratory.worst_case.corrections import table

_RESULTS = Path(__file__).resolve().parents[1] / "studies" / "worst-case.json"


def corrections() -> list[str]:
    """What was found for each rule."""
    return table(orjson.loads(_RESULTS.read_bytes()))

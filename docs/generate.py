"""Writes the generated parts of the pages in docs/.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is
written by hand. `--check` writes nothing, and exits with 1 if a page differs from the code.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import click
from generation.audit import checks, unchecked
from generation.claims import influences
from generation.combinations import of_features, of_rules
from generation.commands import commands
from generation.devices import links, lives, models, networks, profiles
from generation.environment import variables
from generation.journal import events
from generation.ledger import columns
from generation.metrics import buckets, metrics
from generation.protocol import calls, limits, numbers, transitions
from generation.scenario import plug_ins, scenario_sections
from generation.worst_case import corrections

import muster.client.device.session
import muster.server.rounds.phases
from muster.common.exchange import Decision, Outcome, Reason
from muster.server.account.tables import LEDGER_TABLES
from muster.v1 import fleet_pb2 as pb

DOCS = Path(__file__).resolve().parent

PAGES: Mapping[str, Mapping[str, Callable[[], list[str]]]] = {
    "aggregators.md": {"rules": of_rules, "features": of_features},
    "audit.md": {"checks": checks, "unchecked": unchecked},
    "commands.md": {"commands": commands, "environment": variables},
    "protocol.md": {
        "fleet": calls("fleet.proto"),
        "operator": calls("operator.proto"),
        "limits": limits,
        "rounds": transitions(
            muster.server.rounds.phases.TRANSITIONS, muster.server.rounds.phases.RoundPhase
        ),
        "session": transitions(
            muster.client.device.session.ON_RUNNING_CLOCKS,
            muster.client.device.session.SessionPhase,
        ),
        "decisions": numbers(pb.Decision, "DECISION", Decision),
        "outcomes": numbers(pb.Outcome, "OUTCOME", Outcome),
        "reasons": numbers(pb.Reason, "REASON", Reason),
    },
    "metrics.md": {"buckets": buckets, "metrics": metrics},
    "results.md": {"events": events, **{t.name: columns(t) for t in LEDGER_TABLES}},
    "security.md": {"influences": influences},
    "scenario.md": {
        "sections": scenario_sections,
        "profiles": profiles,
        "models": models,
        "lives": lives,
        "networks": networks,
        "links": links,
        "plug-ins": plug_ins,
    },
    "studies/worst-case.md": {"corrections": corrections},
}

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str, text: str) -> str:
    """`text` with every generated part of the page as it should be."""
    parts = PAGES[page]
    missing = parts.keys() ^ {match[2] for match in _PART.finditer(text)}
    if missing:
        raise click.ClickException(f"{page}: no place, or no text, for {', '.join(missing)}")

    def fill(match: re.Match[str]) -> str:
        lines = "\n".join(parts[match[2]]()).strip()
        return f"{match[1]}\n{lines}\n\n{match[3]}"

    return _PART.sub(fill, text)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a page is out of date.")
def main(check: bool) -> None:
    """Write the generated parts of the pages."""
    for page in PAGES:
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        new = rendered(page, text)
        if new != text and check:
            raise click.ClickException(f"docs/{page} is not what the code says: make docs")
        if new != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()

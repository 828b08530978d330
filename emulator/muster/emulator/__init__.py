"""The emulator: `plan` a scenario, `run` it, `resume` a run, `audit` it, `compare` variants;
`inject` and `heal` faults by hand, and get them as a scenario's tables with `exported_faults`.

The command line is a thin layer over them. They are imported when they are asked for: a gateway
lives in this package too, and needs none of what they need. Not even `typing` is imported, which
takes longer than all the rest: an interrupt before `entry` runs ends with a traceback.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from muster.emulator.comparison import Comparison, compare, resume_comparison
    from muster.emulator.export.faults import exported_faults
    from muster.emulator.injection.by_hand import heal, inject
    from muster.emulator.planning import Plan, plan
    from muster.emulator.run_audit import AuditResult, audit
    from muster.emulator.runs.running import Run, resume, run

__all__ = [
    "AuditResult",
    "Comparison",
    "Plan",
    "Run",
    "audit",
    "compare",
    "exported_faults",
    "heal",
    "inject",
    "plan",
    "resume",
    "resume_comparison",
    "run",
]

_WHERE = {
    "AuditResult": "run_audit",
    "audit": "run_audit",
    "Comparison": "comparison",
    "Plan": "planning",
    "Run": "runs.running",
    "compare": "comparison",
    "exported_faults": "export.faults",
    "heal": "injection.by_hand",
    "inject": "injection.by_hand",
    "plan": "planning",
    "resume": "runs.running",
    "resume_comparison": "comparison",
    "run": "runs.running",
}


def __getattr__(name: str) -> "Any":
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)

"""`muster audit`: checks a run folder by itself, and repeats the rule of the run.

`auditing` runs the checks: of the ledger, of the weights and versions by the rule, and of the other
files. `repeated_rule` gives the rule again what it got in the run.
docs/audit.md says what is checked and what cannot be.
"""

from muster.emulator.run_audit.auditing import audit
from muster.emulator.run_audit.result import AuditCheck, AuditResult, Difference

__all__ = ["AuditCheck", "AuditResult", "Difference", "audit"]

"""A check of an audit."""

from collections.abc import Callable
from typing import NamedTuple

from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog


class Check(NamedTuple):
    """A check of an audit.

    Attributes:
        title: what it is about, in the words of the output.
        says: what it compares, as docs/audit.md says it.
        compare: compares it.
    """

    title: str
    says: str
    compare: Callable[[Evidence, CheckLog], None]

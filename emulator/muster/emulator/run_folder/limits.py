"""What of a program can be limited, and for how long without a word from the supervisor."""

from typing import Literal

Limited = Literal["cpu", "memory", "files"]
"""What a limit is about: the share of a core, bytes of memory, or bytes of each file that is
written."""

LEASE_S = 10.0
"""Seconds of silence after which the watchdog lets everything go on."""

"""What of a program can be limited."""

from typing import Literal

Limited = Literal["cpu", "memory", "files"]
"""What a limit is about: the share of a core, bytes of memory, or bytes of each file that is
written."""

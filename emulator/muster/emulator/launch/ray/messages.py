"""What the backend and the program of a node say to each other: lines of JSON.

The backend sends requests, and the program answers each with the same `id`:

    {"id": 1, "do": "start_nursery", "config": {...}}
    {"id": 1, "result": {...}}  or  {"id": 1, "failed": "ConfigError", "why": "..."}

Without a request, the program tells `{"alive": {name: pid}}`, what has been started since the line
before, and `{"died": name, "status": -9}`. The actor that started the program adds the last line,
`{"ended": status}`.
"""

from typing import Any

from muster.common.errors import ConfigError, LaunchFailed
from muster.emulator.launch.backend import EndedBeforeReady


def failure_to_json(error: Exception) -> dict[str, Any]:
    """An error that a request led to, as the rest of its answer."""
    if isinstance(error, EndedBeforeReady):
        ended = {"name": error.name, "status": error.status, "last_lines": error.last_lines}
        return {"failed": "EndedBeforeReady", **ended}
    kind = "ConfigError" if isinstance(error, ConfigError) else "LaunchFailed"
    return {"failed": kind, "why": str(error) or type(error).__name__}


def failure_from_json(answer: dict[str, Any]) -> Exception:
    """The error of an answer that has one."""
    match answer["failed"]:
        case "EndedBeforeReady":
            return EndedBeforeReady(answer["name"], answer["status"], answer["last_lines"])
        case "ConfigError":
            return ConfigError(answer["why"])
        case _:
            return LaunchFailed(answer["why"])

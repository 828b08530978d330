"""Counts the examples of an app's devices: `python -m muster.tasks.flower.counting`.

It reads a line of JSON from standard input (`CountSetup`), and writes one to standard output: how
many examples each device has, or why the app cannot be hosted. What the app prints goes to standard
error.
"""

import json
import os
import sys

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.tasks.flower.opened import Flower


class CountSetup(Section):
    """What to count."""

    task: Flower
    """The app; its `examples` are the most that are believed."""

    population: int
    seed: int


def main(line: str) -> dict[str, object]:
    """Let every device train once, on the initial model, and return what it states."""
    wanted = CountSetup.from_json(line)
    opened = wanted.task.open(wanted.population, wanted.seed)
    try:
        return {"examples": opened.count_examples()}
    except ConfigError as error:
        return {"refused": str(error)}


if __name__ == "__main__":
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer = json.dumps(main(sys.stdin.readline()))
    os.write(answers, f"{answer}\n".encode())
    os._exit(0)  # whatever threads the app has left

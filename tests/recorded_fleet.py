"""A fleet that follows a table of devices and recordings, over a link that two groups share."""

from pathlib import Path
from typing import Any

DRIVE = "seconds,down Mbit/s,up Mbit/s\n0,8,3\n2,2,1\n4,6,2\n6,3,2\n"
TABLE = """trace,trace_up,cell,rtt_ms,examples_per_s
drive1.csv,drive2.csv,north,20,100
drive2.csv,drive1.csv,north,40,200
"""
LIFE = "device,start,end\na,0,500\nb,60,400\nc,0,90\n"


def recorded_groups(folder: Path) -> list[dict[str, Any]]:
    """The groups of the fleet, whose files are written into a folder."""
    folder.mkdir()
    for name in ("drive1.csv", "drive2.csv", "cell.csv"):
        (folder / name).write_text(DRIVE)
    (folder / "devices.csv").write_text(TABLE)
    (folder / "life.csv").write_text(LIFE)
    cell = str(folder / "cell.csv")
    link = {
        "name": "region",
        "trace": cell,
        "trace_start": "1 s",
        "cross_traffic": [{"down": "1 Mbit/s", "on": "2 s", "off": "2 s"}],
        "cells": {"north": {"trace_up": cell, "trace_start": "random"}},
    }
    phones = {
        "name": "phones",
        "count": 2,
        "table": {"path": str(folder / "devices.csv"), "rows": "drawn"},
        "availability": {"kind": "trace", "file": str(folder / "life.csv")},
        "shared_link": link,
    }
    return [phones, {"name": "office", "count": 1, "shared_link": {"name": "region"}}]

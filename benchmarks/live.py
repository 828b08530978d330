"""What the live page costs beside a large fleet: processor time of its program and of a browser.

    python benchmarks/live.py [--devices 10000] [--rounds-per-s 10] [--called 100] [--seconds 30]

It writes the journal and the ledger that a server would write, at that pace, and looks at the page
with headless Chromium (CHROMIUM=/usr/bin/chromium). It needs the extras `live` and `browser`.
"""

import argparse
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from processes import cpu_s, tree

from muster.server.account.tables import schema

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
COUNT_FRAMES = """
window.frames_seen = 0;
const parse = JSON.parse;
JSON.parse = (text) => { window.frames_seen += 1; return parse(text); };
"""
STATE = json.dumps({"battery": 0.5, "charging": False, "network": "wifi"})


class FakeServer:
    """Writes rounds into a run folder."""

    def __init__(self, folder: Path, devices: int, called: int) -> None:
        self._called, self._round = called, 0
        self._clients = [f"dev-{place:04d}" for place in range(devices)]
        (folder / "scenario.toml").write_text(
            f'name = "large"\n[[groups]]\nname = "dev"\ncount = {devices}\n'
        )
        self._journal = (folder / "journal.jsonl").open("w")
        self._ledger = sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)
        self._ledger.execute("PRAGMA journal_mode = WAL")
        self._ledger.executescript(schema())
        self._ledger.executemany(
            'INSERT INTO clients (client, "group", position, examples, enrolled) '
            "VALUES (?, 'dev', ?, 10, 1)",
            [(client, place) for place, client in enumerate(self._clients)],
        )
        self._say("server_started", run="r", round=0, version=0, population=devices,
                  rounds=1_000_000, counts="rounds", bytes_up=0, bytes_down=0)  # fmt: skip
        for client in self._clients:
            self._say("attended", client=client)
        self._journal.flush()

    def play_round(self) -> None:
        """Write one round."""
        self._round += 1
        first = self._round * self._called
        cohort = [
            self._clients[(first + place) % len(self._clients)] for place in range(self._called)
        ]
        number, at = self._round, time.time()
        self._say("round_opened", round=number, base_version=number - 1, called=len(cohort),
                  scenario_s=60.0 * number)  # fmt: skip
        for client in cohort:
            self._say("received", round=number, client=client, attempt=1, bytes=60_040)
        self._ledger.execute("BEGIN")
        self._insert("answers", [
            {"round": number, "client": client, "decision": "accept", "state": STATE,
             "modelled_s": 2.0, "at": at} for client in cohort
        ])  # fmt: skip
        self._insert("contributions", [
            {"round": number, "client": client, "call_round": number, "attempt": 1,
             "base_version": number - 1, "staleness": 0, "weight": 1.0, "examples": 10,
             "mask_ratio": 1.0, "bytes_up": 60_040, "bytes_down": 60_040, "bytes_saved": 0,
             "train_s": 0.01, "transfer_s": 0.01, "outcome": "folded", "at": at}
            for client in cohort
        ])  # fmt: skip
        row = {"round": number, "base_version": number - 1, "version": number,
               "outcome": "aggregated", "called": len(cohort), "accepted": len(cohort),
               "folded": len(cohort), "bytes_up": 1, "bytes_down": 1, "seconds": 0.05}  # fmt: skip
        more = {"weight_sum": 100.0, "weight_max": 1.0, "effective_size": 100.0,
                "scenario_s": 60.0 * number, "opened_at": at, "closed_at": at}  # fmt: skip
        self._insert("rounds", [row | more])
        self._ledger.execute("COMMIT")
        del row["base_version"]
        self._say("round_committed", **row)
        self._say("evaluated", version=number, round=number, loss=1 / number, accuracy=0.5,
                  seconds=0.01)  # fmt: skip
        self._journal.flush()

    def _say(self, name: str, **fields: Any) -> None:
        event = {"event": name, "at": time.time(), "role": "server", "incarnation": 1, **fields}
        self._journal.write(json.dumps(event, separators=(",", ":")) + "\n")

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        names = ", ".join(rows[0])
        places = ", ".join(f":{name}" for name in rows[0])
        self._ledger.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)


def processor_s(processes: Iterable[int]) -> float:
    """Seconds of processor time that processes have used so far."""
    used = 0.0
    for process in processes:
        with suppress(FileNotFoundError):
            used += cpu_s(process)
    return used


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--rounds-per-s", type=float, default=10.0)
    parser.add_argument("--called", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        server = FakeServer(folder, options.devices, options.called)
        command = "from muster.cli.commands import main; main()"
        live = subprocess.Popen(
            [sys.executable, "-c", command, "live", name], stdout=subprocess.PIPE, text=True
        )
        assert live.stdout is not None
        found = re.search(r"http\S+", live.stdout.readline())
        assert found is not None
        before = set(tree(os.getpid()))
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        page = browser.new_page()
        page.add_init_script(COUNT_FRAMES)
        page.goto(found.group())
        page.wait_for_selector("#page:not([hidden])")
        server.play_round()
        page.wait_for_timeout(3000)
        windows = [process for process in tree(os.getpid()) if process not in before]
        began = time.monotonic()
        start = processor_s([live.pid]), processor_s(windows)
        seen, rounds = page.evaluate("window.frames_seen"), 0
        while (now := time.monotonic() - began) < options.seconds:
            if rounds <= now * options.rounds_per_s:
                server.play_round()
                rounds += 1
            else:
                time.sleep(0.005)
        took = time.monotonic() - began
        used = processor_s([live.pid]) - start[0], processor_s(windows) - start[1]
        frames = page.evaluate("window.frames_seen") - seen
        browser.close()
        live.terminate()
        live.wait()
    print(f"{options.devices} devices, {rounds / took:.1f} rounds/s, {options.called} called")
    print(f"  the page's program  {100 * used[0] / took:5.1f} % of a core")
    print(f"  the browser         {100 * used[1] / took:5.1f} % of a core")
    print(f"  the page changed    {frames / took:5.1f} times a second")


if __name__ == "__main__":
    main()

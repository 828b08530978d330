"""The example notebook, executed in a real kernel, and Ctrl-C in one."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.chaos.run_processes import run_processes
from muster.emulator.following.following import status_of
from muster.emulator.run_folder.journal_tail import journal_events
from muster.torch import read

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "examples/notebooks/own_model.ipynb"

pytestmark = [
    pytest.mark.usefixtures("nothing_left"),
    # ZeroMQ, nbclient and the kernel's port warn of themselves.
    pytest.mark.filterwarnings("ignore"),
]


def client_of(notebook: Any, folder: Path) -> Any:
    place = {"metadata": {"path": str(folder)}}
    return nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=place)


def html_of(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_the_notebook_runs_and_shows_a_run_a_plan_and_a_comparison(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear its outputs"
    done = client_of(notebook, tmp_path).execute()
    shown = {
        last: html_of(cell)
        for cell in done.cells
        if cell.cell_type == "code" and (last := cell.source.splitlines()[-1])
    }
    for value in ("found", "task.plan(harder)", "compared"):
        assert "data:image/png;base64," in shown[value], value
    assert "<progress" in shown["found"]
    assert "aggregator=fedadam" in shown["compared"]
    assert read(tmp_path / "runs/latest").summary["final"]["accuracy"] > 0.8


CELL = """
from torch import nn
from muster.torch import run

found = run(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "digits", out="long", rounds=1_000_000)
print(found.status)
"""


async def interrupted(client: Any, cell: Any, ready: Callable[[], bool]) -> None:
    """Execute a cell, and interrupt its kernel when something is ready."""
    async with client.async_setup_kernel():
        executing = asyncio.ensure_future(client.async_execute_cell(cell, 0))
        while not ready():
            await asyncio.wait({executing}, timeout=0.1)
            assert not executing.done(), cell.outputs
        await client.km.interrupt_kernel()
        await executing


def test_an_interrupted_cell_leaves_no_process(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    cell, folder = notebook.cells[0], tmp_path / "long"

    def ready() -> bool:
        return any(journal_events(folder / "journal.jsonl", "round_committed"))

    asyncio.run(interrupted(client_of(notebook, tmp_path), cell, ready))
    assert [o.text.strip() for o in cell.outputs if o.output_type == "stream"] == ["stopped"]
    assert "<progress" in html_of(cell)
    assert run_processes(folder) == []
    assert status_of(folder).state == "stopped"

"""Whole runs whose devices train on a GPU, beside the same runs on the processors.

python benchmarks/gpu.py

Both ways take turns. A round's seconds are the mean over all rounds after the first; `spread` is
the largest distance of one entry between the models that both ways end with.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).parent
ROUNDS = 6
DEVICES, PROCESSES = 32, 8
MODELS: dict[str, list[int]] = {
    "MLP 64-200": [200],
    "MLP 64-2048-2048": [2048, 2048],
}


def scenario(hidden: list[int], device: str, together: int) -> dict[str, Any]:
    group = {"name": "d", "count": DEVICES, "devices_per_process": DEVICES // PROCESSES}
    return {
        "name": "gpu",
        "task": {"name": "digits", "model": "mlp", "hidden": hidden},
        "training": {
            "learning_rate": 0.02,
            "local_steps": 50,
            "batch_size": 40,
            "together": together,
        },
        "server": {"rounds": ROUNDS, "evaluate_every": ROUNDS},
        "launch": {"devices_per_gpu": PROCESSES},
        "groups": [{**group, "device": {"torch_device": device}}],
    }


def run(folder: Path, planned: dict[str, Any]) -> float:
    """Run the scenario into `folder`, and return the seconds of a round after the first."""
    import tomli_w

    path = folder.with_suffix(".toml")
    path.write_text(tomli_w.dumps(planned))
    muster = Path(sys.executable).with_name("muster")
    command: list[str | Path] = [muster, "run", path, "--out", folder, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    commits = [line["at"] for line in lines if line["event"] == "round_committed"]
    return float(commits[-1] - commits[0]) / (len(commits) - 1)


def distance(one: Path, other: Path) -> float:
    """The largest distance of one entry between the models of two run folders."""
    models = [load_file(folder / "model.safetensors") for folder in (one, other)]
    return max(float(np.abs(models[0][name] - models[1][name]).max()) for name in models[0])


def compared(hidden: list[int], together: int, turns: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {"cpu": [], "cuda": []}
    with tempfile.TemporaryDirectory() as parent:
        for turn in range(turns):
            for device, taken in seconds.items():
                folder = Path(parent) / f"{device}-{turn}"
                taken.append(run(folder, scenario(hidden, device, together)))
        spread = distance(Path(parent) / "cpu-0", Path(parent) / "cuda-0")
    found = {f"{device}_s": statistics.median(taken) for device, taken in seconds.items()}
    pairs = zip(seconds["cpu"], seconds["cuda"], strict=True)
    return {**found, "ratio": statistics.median(c / g for c, g in pairs), "spread": spread}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "out/gpu.json")
    settings = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py needs a GPU that PyTorch can use; found none")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, hidden in MODELS.items():
        for together in (1, DEVICES // PROCESSES):
            way = f"{name}, {together} at a time"
            found[way] = compared(hidden, together, settings.turns)
            sys.stdout.write(f"{way}: {json.dumps(found[way])}\n")
            sys.stdout.flush()
    settings.out.parent.mkdir(exist_ok=True)
    settings.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

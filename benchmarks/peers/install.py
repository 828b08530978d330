"""Set up the virtual environments of the comparisons under .bench-peers/.

Safe to run again: an environment whose pins have not changed is left as it is.
"""

import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / ".bench-peers"
# 1.11.1 is the last line in which start_server drives real clients without a SuperLink;
# its dependencies are Flower's own choice, so each environment has its own grpcio and numpy.
# "same-app" has muster beside Flower and Ray, so that the same torch trains the app under both.
PINS = {
    "flwr-1.11.1": ("flwr==1.11.1",),
    "flwr-next": ("flwr[simulation]==1.41.0",),
    "same-app": ("--editable=.[flower]", "flwr[simulation]==1.41.0", "torch==2.13.0"),
    "flwr": ("flwr[simulation]==1.41.0", "torch==2.13.0"),
    "pfl": ("pfl==0.6.0", "torch==2.13.0"),
    "fluke": ("fluke-fl==0.8.1", "torch==2.13.0"),
    "flgo": ("flgo==0.4.4", "torch==2.13.0"),
    "appfl": ("appfl==1.12.0", "torch==2.13.0"),
}


def python(name: str) -> Path:
    """The interpreter of one environment, whether or not it exists yet."""
    folder = "Scripts" if os.name == "nt" else "bin"
    return ROOT / name / folder / "python"


def installed(name: str) -> bool:
    """Whether the environment was completed with the pins of today."""
    stamp = ROOT / name / "installed"
    return stamp.is_file() and stamp.read_text(encoding="utf-8").split() == list(PINS[name])


def install(name: str) -> None:
    """Create the environment from nothing; the stamp is written last.

    Raises:
        subprocess.CalledProcessError: pip failed; the next run starts afresh.
    """
    target = ROOT / name
    if target.exists():
        shutil.rmtree(target)
    started = time.monotonic()
    print(f"{name}: creating {target.relative_to(REPOSITORY)}", flush=True)
    venv.create(target, with_pip=True)
    print(f"{name}: installing {' '.join(PINS[name])}", flush=True)
    subprocess.run(
        [str(python(name)), "-m", "pip", "install", "--quiet", *PINS[name]],
        check=True,
        cwd=REPOSITORY,
        env={
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        },
    )
    (target / "installed").write_text("\n".join(PINS[name]) + "\n", encoding="utf-8")
    print(f"{name}: ready after {time.monotonic() - started:.0f} s", flush=True)


def main() -> int:
    for name in sys.argv[1:] or PINS:
        if installed(name):
            print(f"{name}: already there", flush=True)
            continue
        try:
            install(name)
        except subprocess.CalledProcessError as failure:
            print(f"{name}: pip ended with status {failure.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

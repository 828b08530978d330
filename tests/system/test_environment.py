"""Runs in an environment that would change or end them if its variables reached the libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")

NOWHERE = "http://127.0.0.1:9"
HOSTILE = {
    "http_proxy": NOWHERE,
    "https_proxy": NOWHERE,
    "grpc_proxy": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "GRPC_ADDRESS_HTTP_PROXY": "127.0.0.1:9",
    "GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES": "127.0.0.0/8",
    "GRPC_SSL_CIPHER_SUITES": "none",
    "GRPC_ASYNCIO_ENGINE": "none",
    "MPLBACKEND": "none",
    "MATPLOTLIBRC": "/nonexistent",
    "PYTHONIOENCODING": "ascii",
    "PYTHONWARNINGS": "error",
    "PROMETHEUS_MULTIPROC_DIR": "/nonexistent",
    "WEB_CONCURRENCY": "many",
    "OMP_NUM_THREADS": "7",
    "MKL_NUM_THREADS": "7",
    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "TERM": "dumb",
}
SCENARIO = """
name = "test"
seed = 1
[task]
name = "digits"
model = { kind = "mlp", hidden = [16] }
[server]
rounds = 2
stall_s = 30
[[groups]]
name = "dev"
count = 2
[[groups]]
name = "far"
count = 1
link = { profile = "wifi" }
"""


@pytest.mark.parametrize("tls", [pytest.param("false", marks=pytest.mark.soak), "true"])
def test_a_run_is_the_same_in_a_hostile_environment(tmp_path: Path, tls: str) -> None:
    folder = tmp_path / "für"
    folder.mkdir()
    (folder / "scenario.toml").write_text(SCENARIO)
    models = []
    for name, variables in {"plain": {}, "hostile": HOSTILE}.items():
        command = "from muster.cli.entry import main; main()"
        arguments = ["run", "scenario.toml", "--out", name, "--set", f"launch.tls={tls}"]
        ended = subprocess.run(
            [sys.executable, "-c", command, *arguments],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        models.append((folder / name / "model.safetensors").read_bytes())
    assert models[0] == models[1]

"""Processes beside the server."""

import subprocess
import sys

PRINTS = """
import os, sys
from muster.server.runtime.beside import results_pipe
print("before")
pipe = results_pipe()
print("noise of an app", flush=True)
os.write(1, b"noise of a library")
pipe.write(b"result")
pipe.flush()
"""


def test_what_an_app_prints_is_no_result() -> None:
    command = [sys.executable, "-c", PRINTS]
    done = subprocess.run(command, capture_output=True, check=True, timeout=100)
    assert done.stdout == b"before\nresult"
    assert done.stderr == b"noise of an app\nnoise of a library"

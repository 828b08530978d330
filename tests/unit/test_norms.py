"""Norms have the same bits, however many threads a library may use."""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITH_MODELS = ("proto", "common/muster/common", "server", "client")

NORMS = """
import numpy as np
from muster.common.compression.contract import EntryRange
from muster.common.exact_sum import squared_norm
from muster.common.partial_sums import EncodedSum
from muster.common.tensors import sum_of_squares

entries = np.random.default_rng(7).standard_normal(300_000).astype(np.float32)
coarse = (entries[:100_000].astype(np.float64) * 2**40).astype("<i8").tobytes()
print(EntryRange().with_entries(entries).squares.hex())
print(squared_norm(lambda start, stop: entries[start:stop], len(entries)).hex())
sum = EncodedSum(lambda length, at: coarse[at : at + length], 100_000, fine=False)
print(sum.extent()[1].hex())
print(sum_of_squares(entries.astype(np.float64)).hex())
"""


def norms(threads: int) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    return subprocess.run(
        [sys.executable, "-c", NORMS], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_norm_does_not_depend_on_the_number_of_threads() -> None:
    assert norms(1) == norms(2)


def test_no_norm_of_a_model_is_left_to_the_threads_of_a_library() -> None:
    """`x @ x` is left to BLAS, which adds in another order with other threads."""
    for path in (path for part in WITH_MODELS for path in (ROOT / part).rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.MatMult):
                alike = ast.unparse(each.left) == ast.unparse(each.right)
                assert not alike, f"{path}:{each.lineno}: expected sum_of_squares"

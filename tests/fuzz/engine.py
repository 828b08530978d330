"""Fuzzes one target with atheris: `python -m tests.fuzz.engine TARGET SEED [option…]`.

The options are those of libFuzzer. atheris measures which lines of muster an input reaches, and
keeps inputs that reach new ones. It ends the process when it is done.
https://github.com/google/atheris
"""

import random
import sys
import warnings

import atheris

with atheris.instrument_imports(include=["muster"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS

_STRUCTURED = 0.5
"""Share of the mutations that are those of the target."""


def main() -> None:
    name, seed, *options = sys.argv[1:]
    warnings.simplefilter("error")  # as in the tests
    target, draws = TARGETS[name], random.Random(int(seed))

    def mutated(data: bytes, most_bytes: int, _: int) -> bytes:
        if target.mutate is not None and draws.random() < _STRUCTURED:
            changed = target.mutate(data, draws)
            if len(changed) <= most_bytes:
                return changed
        return bytes(atheris.Mutate(data, most_bytes))

    def run(data: bytes) -> None:
        target.accepts(data)

    custom = {} if target.mutate is None else {"custom_mutator": mutated}
    atheris.Setup([sys.argv[0], f"-seed={seed}", *options], run, **custom)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

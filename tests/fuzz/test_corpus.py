"""The inputs that fuzzing has found are accepted, or refused as documented."""

import pytest
from tests.fuzz.corpus import CORPUS, inputs_of
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_is_accepted_or_refused(name: str) -> None:
    target = TARGETS[name]
    inputs = [*target.seeds(), *(path.read_bytes() for path in inputs_of(name))]
    accepted = sum(target.accepts(data) for data in inputs)
    assert 0 < accepted, "a target that refuses everything tests nothing"
    assert accepted < len(inputs) or not target.refusals


def test_the_corpus_is_small_and_of_targets_only() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < 1_000_000

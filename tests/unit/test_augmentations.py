"""Augmentations: what they make of a minibatch, and that they act in training only."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from muster.client.processes.config import GroupTrial, Trial
from muster.client.processes.trial import try_task
from muster.client.training.augmentations import AUGMENTATIONS, Augmentation
from muster.client.training.local import train
from muster.client.training.settings import GroupTraining, Training
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.classification import Digits
from muster.tasks.parts import vector_of
from muster.tasks.task import Examples, OpenTask

SEEN: list[Any] = []


def seen(x: Any, generator: torch.Generator) -> Any:
    """Notes what it got, and spoils it."""
    SEEN.append(torch.clone(x))
    return x.mul_(torch.rand(1, generator=generator))


def halved(x: Any, generator: torch.Generator) -> Any:
    return x[::2]


def named(x: Mapping[str, torch.Tensor], generator: torch.Generator) -> Any:
    return {"left": x["left"] + 1, "right": x["right"]}


def made(kind: str, **settings: Any) -> Augmentation:
    parsed = AUGMENTATIONS.parse({"kind": kind, **settings})
    assert isinstance(parsed, Augmentation)
    return parsed


def applied(augmentation: Augmentation, x: Any, seed: int = 1) -> Any:
    return augmentation.applied(x, torch.Generator().manual_seed(seed))


PICTURES = torch.arange(1.0, 300 * 3 * 5 * 4 + 1).reshape(300, 3, 5, 4)
"""No number occurs twice, and none is 0."""


@pytest.mark.parametrize("x", [PICTURES, PICTURES[:, 0]], ids=["colour", "grey"])
def test_a_crop_is_a_part_of_the_picture_with_a_border(x: torch.Tensor) -> None:
    found = applied(made("crop", padding=2), x)
    assert found.shape == x.shape
    moves = set()
    for old, new in zip(x, found, strict=True):
        bordered = torch.nn.functional.pad(old, [2] * 4)
        fits = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(bordered[..., top : top + 5, left : left + 4], new)
        ]
        assert len(fits) == 1
        moves.update(fits)
    assert moves == {(top, left) for top in range(5) for left in range(5)}


def test_a_flip_mirrors_some_pictures_as_a_whole() -> None:
    found = applied(made("flip", probability=0.25), PICTURES)
    mirrored = [torch.equal(old.flip(2), new) for old, new in zip(PICTURES, found, strict=True)]
    for old, new, turned in zip(PICTURES, found, mirrored, strict=True):
        assert turned or torch.equal(old, new)
    assert 0.17 < np.mean(mirrored) < 0.33
    assert torch.equal(applied(made("flip", probability=1.0), PICTURES), PICTURES.flip(3))


def test_an_erased_square_lies_around_a_pixel_of_the_picture() -> None:
    found = applied(made("erase", size=2), PICTURES)
    sizes = set()
    for old, new in zip(PICTURES, found, strict=True):
        gone = new[0] == 0
        assert torch.equal(new, old.masked_fill(gone, 0))  # the same square in every channel
        rows, columns = gone.any(1).nonzero().ravel(), gone.any(0).nonzero().ravel()
        assert gone[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        sizes.add((len(rows), len(columns)))
    assert sizes == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert not applied(made("erase", size=12), PICTURES).any()


def test_noise_has_the_deviation_that_was_asked_for() -> None:
    x = torch.full((100, 100), 3.0)
    found = applied(made("noise", deviation=0.5), x)
    assert abs(found.mean().item() - 3) < 0.03
    assert abs(found.std().item() - 0.5) < 0.02


def test_the_same_generator_gives_the_same_and_another_one_gives_another() -> None:
    for kind in AUGMENTATIONS.built_in:
        first, again, other = (applied(made(kind), PICTURES, seed) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def opened() -> OpenTask:
    return Digits(model={"kind": "softmax"}).open(20, 1)  # type: ignore[arg-type]


def settings(*augmentations: Any, **more: Any) -> Training:
    values = {"augmentations": list(augmentations), "batch_size": 32, "local_epochs": 2, **more}
    return validate(Training, values, "test")


def delta(training: Training, *, client: str = "a", round: int = 1, seed: int = 1) -> Any:
    task = opened()
    module, examples = task.module(), task.client(0)
    where: dict[str, Any] = {"seed": seed, "client": client, "round": round, "base_version": 0}
    return train(task, module, vector_of(module), examples, training, **where).delta


def test_draws_follow_from_the_seed_the_device_and_the_round() -> None:
    full = settings("flip", {"kind": "crop", "padding": 1}, batch_size="full")
    found = [delta(full), delta(full, client="b"), delta(full, round=2), delta(full, seed=2)]
    np.testing.assert_array_equal(found[0], delta(full))
    # Without augmentations nothing would differ: a minibatch is all examples.
    assert len({each.tobytes() for each in found}) == 4


def test_every_pass_draws_anew_from_the_examples_as_they_are() -> None:
    task, kind = opened(), f"{__name__}:seen"
    module, examples = task.module(), task.client(0)
    kept = examples.x.copy()
    SEEN.clear()
    training = settings("flip", kind, batch_size="full", local_epochs=3, initial_loss=True)
    named = {"seed": 1, "client": "a", "round": 1, "base_version": 0}
    train(task, module, vector_of(module), examples, training, **named)  # type: ignore[arg-type]
    np.testing.assert_array_equal(examples.x, kept)  # though the function writes into what it gets
    assert len(SEEN) == 3  # and not for the initial loss
    for first, second in pairwise(SEEN):
        assert not torch.equal(first, second)
    for x in SEEN:
        for old, new in zip(torch.from_numpy(kept), x, strict=True):
            assert torch.equal(old, new) or torch.equal(old.flip(1), new)


def test_groups_may_have_others_or_none() -> None:
    training = settings("flip")
    assert training.of(GroupTraining()).augmentations == training.augmentations
    assert training.of(validate(GroupTraining, {"augmentations": []}, "t")).augmentations == []
    own = validate(GroupTraining, {"augmentations": ["noise"]}, "t")
    assert [each.kind for each in training.of(own).augmentations] == ["noise"]


@pytest.mark.parametrize(
    ("kind", "x", "why"),
    [
        ("flip", torch.zeros(4, 7), r"flip: expected pictures of .* float32 and shape \(4, 7\)"),
        ("noise", torch.zeros(4, 7, dtype=torch.int64), "noise: expected one input of floats"),
        ("crop", {"left": torch.zeros(4, 7)}, "crop: expected one input .* left: float32"),
        (f"{__name__}:halved", torch.zeros(4, 7), "a row for each of the 4 examples, found"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, x: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        applied(made(kind), x)


def test_a_function_of_ones_own_gets_inputs_by_name() -> None:
    x = {"left": torch.zeros(4, 7), "right": torch.ones(4)}
    found = applied(made(f"{__name__}:named"), x)
    assert found["left"].tolist() == torch.ones(4, 7).tolist()


def test_it_is_tried_before_the_start() -> None:
    task = opened()
    flat = task.client(0)
    task.client = lambda index: Examples(flat.x.reshape(len(flat), -1), flat.y)  # type: ignore[method-assign]
    group = GroupTrial(name="g", devices={"g-0": 0}, training=GroupTraining())
    with pytest.raises(ConfigError, match=r"flip: expected pictures .* shape \(32, 64\)"):
        try_task(task, Trial(training=settings("flip"), groups=[group]), 1)


def scenario(augmentations: Any, **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "augmented",
        "task": {"name": "digits", "model": "softmax"},
        "training": {"augmentations": augmentations, **more.pop("training", {})},
        "server": {"rounds": 1},
        "groups": [{"name": "g", "count": 2}],
    }
    return validate(Scenario, values | more, "test")


@pytest.mark.parametrize(
    ("augmentations", "more", "why"),
    [
        (["flop"], {}, "no augmentation called 'flop' .did you mean 'flip'"),
        ([{"kind": "crop", "padding": 0}], {}, "padding"),
        ([{"kind": "flip", "probability": 1.5}], {}, "probability"),
        (["flip"], {"task": {"name": "linear"}}, "'flip' changes pictures, and the task 'linear'"),
        (["flip"], {"training": {"trainer": "tests.integration.test_unequal_work:halved"}},
         "leave 'flip' out, and let the function draw"),
        (["noise"], {"training": {"together": 2}}, "training.together: devices .* leave one"),
    ],
)  # fmt: skip
def test_where_it_makes_no_sense_it_is_refused(
    augmentations: Any, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        scenario(augmentations, **more)


def test_noise_is_for_numbers_too() -> None:
    assert scenario(["noise"], task={"name": "linear"}).training.augmentations[0].kind == "noise"

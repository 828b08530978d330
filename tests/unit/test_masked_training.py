"""Training with a mask: only what is inside it moves, and it moves as it should."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from muster.client.config import PackMember, Training
from muster.client.learner import Download, Learner, TrainingConfig
from muster.client.memory import State
from muster.client.optimizers import Optimizer
from muster.client.training import train
from muster.common.clock import WallClock
from muster.common.compression import CODECS
from muster.common.config import validate
from muster.common.exchange import Call, Key
from muster.common.lines import LinkModel
from muster.common.masks import MASKINGS, GroupMasks, Mask
from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.tasks.classification import Digits
from muster.tasks.models import Mlp, initial_vector, layout_of
from muster.tasks.task import OpenTask

OPENED = Digits(name="digits", model=Mlp(hidden=[6])).open(4, 3)
MODULE = OPENED.module()
RECEIVED = initial_vector(MODULE)
MASK = Mask(stream(1, "mask of a test").random(len(RECEIVED)) < 0.3)


class Restless(Optimizer):
    """Moves every entry, whatever its gradient is, and keeps doing so."""

    def step(
        self, theta: Tensor, gradient: Tensor, state: Any, *, rate: float, number: int
    ) -> None:
        theta.sub_(gradient, alpha=rate).add_(0.01 * number)


def trained(mask: Mask | None, opened: OpenTask = OPENED, **values: Any) -> Vector:
    settings = validate(Training, {"batch_size": 10, "local_steps": 4, **values}, "test")
    named: dict[str, Any] = {"seed": 5, "client": "dev", "round": 2, "base_version": 0}
    examples = opened.client(1)
    return train(opened, MODULE, RECEIVED, examples, settings, **named, mask=mask).delta


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"optimizer": {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}},
        {"optimizer": {"kind": "adam", "weight_decay": 0.1}, "learning_rate": 0.01},
        {"optimizer": Restless(kind="restless")},
        {"proximal_mu": 0.5, "clip_norm": 0.1, "clip_update": 0.2},
        {"gradient": True},
    ],
    ids=["sgd", "momentum", "adamw", "own", "proximal", "gradient"],
)
def test_what_is_outside_the_mask_never_moves(values: dict[str, Any]) -> None:
    delta, inside = trained(MASK, **values), MASK.whole()
    assert (delta[~inside] == 0).all()
    assert np.count_nonzero(delta[inside]) > 0.5 * MASK.size
    assert np.array_equal(trained(Mask(np.ones_like(inside)), **values), trained(None, **values))


def test_a_step_is_that_of_the_masked_gradient() -> None:
    """W ← W − η m⊙g, against autograd and a loop in this test."""
    examples, inside = OPENED.client(1), torch.from_numpy(MASK.whole())
    x, y = torch.from_numpy(examples.x), torch.from_numpy(examples.y)
    w1, b1, w2, b2 = (
        torch.from_numpy(each.copy()).requires_grad_()
        for each in layout_of(MODULE).schema.unflatten(RECEIVED).values()
    )
    for _ in range(3):
        scores = torch.relu(x.flatten(1) @ w1.T + b1) @ w2.T + b2
        loss = torch.nn.functional.cross_entropy(scores, y)
        gradients = torch.autograd.grad(loss, (w1, b1, w2, b2))
        step = torch.where(inside, torch.cat([g.ravel() for g in gradients]), 0)
        with torch.no_grad():
            at = 0
            for tensor in (w1, b1, w2, b2):
                tensor -= 0.2 * step[at : at + tensor.numel()].view_as(tensor)
                at += tensor.numel()
    wanted = torch.cat([w.detach().ravel() for w in (w1, b1, w2, b2)]).numpy() - RECEIVED
    found = trained(MASK, batch_size="full", local_steps=3, learning_rate=0.2)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_clipping_counts_only_the_gradient_inside_the_mask() -> None:
    delta = trained(MASK, learning_rate=1.0, clip_norm=0.01, local_steps=1)
    assert np.linalg.norm(delta) == pytest.approx(0.01, rel=1e-4)


@pytest.fixture
def learner(tmp_path: Path) -> Callable[..., Learner]:
    def make(codec: str | dict[str, Any], kind: str = "random") -> Learner:
        masking = MASKINGS.parse({"kind": kind, "schedule": "rotating"})
        masks = GroupMasks(masking, layout_of(MODULE), 0.25, 3)  # type: ignore[arg-type]
        return Learner(
            PackMember(client="dev", index=1),
            OPENED,
            MODULE,
            tmp_path,
            0,
            CODECS.parse(codec),  # type: ignore[arg-type]
            LinkModel(up_bps=8.0),
            True,
            WallClock(),
            masks,
        )

    return make


def config() -> TrainingConfig:
    settings = validate(Training, {"batch_size": 10, "local_steps": 2}, "test")
    return TrainingConfig("run", 5, settings, layout_of(MODULE).schema, True, 1.0)


def test_the_residual_of_a_device_keeps_what_is_outside_the_mask(
    learner: Callable[..., Learner],
) -> None:
    device, work = learner({"kind": "top-k", "ratio": 0.1}), config()
    masks = GroupMasks(
        MASKINGS.parse({"kind": "random", "schedule": "rotating"}),  # type: ignore[arg-type]
        layout_of(MODULE),
        0.25,
        3,
    )
    state, residual = State(0, b""), np.zeros(len(RECEIVED), np.float32)
    for round in range(1, 7):
        inside = masks.of("dev", 1, round).whole()
        call = Call(Key("dev", round, 1), 0, 0.0, bytes(16))
        stored = device.train(call, RECEIVED.tobytes(), work, state, (), Download())
        named: dict[str, Any] = {
            "seed": 5,
            "client": "dev",
            "round": round,
            "base_version": 0,
        }
        delta = train(
            OPENED, MODULE, RECEIVED, OPENED.client(1), work.training, **named,
            mask=masks.of("dev", 1, round),
        ).delta  # fmt: skip
        wanted = delta[inside] + residual[inside]
        count = -(-inside.sum() // 10)
        places, values = np.split(np.frombuffer(stored.body, "<u4"), 2)
        assert len(places) == count
        assert np.array_equal(values.view("<f4"), wanted[places])
        left = wanted.copy()
        left[places] = 0
        residual[inside] = left
        state = device.memory.held[-1].after
        assert np.array_equal(np.frombuffer(state.residual, np.float32), residual)
    assert (residual != 0).mean() > 0.4  # more than one mask; some pixels are always 0


def test_models_of_links_take_the_largest_mask(learner: Callable[..., Learner]) -> None:
    work = config()
    size = int(0.25 * len(RECEIVED))
    assert learner("none").update_bytes(work) == 4 * size
    assert learner("float16").update_bytes(work) == 2 * size
    assert learner("none").modelled_s(work) == pytest.approx(4 * size)
    blocks = learner("none", "blocks")
    per_unit = 64 + 1 + 10
    assert blocks.update_bytes(work) == 4 * (10 + per_unit * ((size - 10) // per_unit))

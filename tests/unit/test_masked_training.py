"""Training with a mask: only what is inside it moves, and it moves as it should."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from muster.client.device.learner import Learner
from muster.client.device.memory import State
from muster.client.device.training_config import DownloadTimes, TrainingConfig
from muster.client.life.settings import PackMember
from muster.client.training.local import minibatches, train
from muster.client.training.optimizers import Optimizer
from muster.client.training.settings import Training
from muster.common.clock import WallClock
from muster.common.compression import CODECS
from muster.common.config import validate
from muster.common.exchange import Call, Key
from muster.common.lines import LinkModel
from muster.common.masks import MASKINGS, GroupMasks, Layout, Mask, Width
from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.tasks.classification import Digits
from muster.tasks.models import Mlp
from muster.tasks.parts import layout_of, vector_of
from muster.tasks.task import OpenTask

OPENED = Digits(name="digits", model=Mlp(hidden=[6])).open(4, 3)
MODULE = OPENED.module()
RECEIVED = vector_of(MODULE)
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
            False,
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
        stored = device.train(call, RECEIVED.tobytes(), work, state, (), DownloadTimes())
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
    assert learner("none").body_sizes(work) == (4 * len(RECEIVED), 4 * size)
    assert learner("float16").body_sizes(work) == (4 * len(RECEIVED), 2 * size)
    assert learner("none").modelled_s(work) == pytest.approx(4 * size)
    per_unit = 64 + 1 + 10
    units = 10 + per_unit * ((size - 10) // per_unit)
    assert learner("none", "blocks").body_sizes(work) == (4 * len(RECEIVED), 4 * units)
    assert learner("float16", "width").body_sizes(work) == (4 * units, 2 * units)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["static", "rotating", "drawn"])
def test_a_device_with_a_slice_trains_a_narrower_model(tmp_path: Path, schedule: str) -> None:
    """A perceptron that really has fewer units, with the slice's weights, trained by torch."""
    opened = Digits(name="digits", model=Mlp(hidden=[9, 5])).open(4, 3)
    module, work = opened.module(), config()
    layout = layout_of(module)
    received = stream(1, "a model").normal(0, 0.3, layout.parameters).astype(np.float32)
    work = replace(work, schema=layout.schema)
    masks = GroupMasks(
        validate(Width, {"kind": "width", "schedule": schedule}, "m"), layout, 0.5, 3
    )
    named = PackMember(client="dev", index=1)
    codec = CODECS.parse("none")
    device = Learner(
        named, opened, module, tmp_path, False, codec, LinkModel(), True, WallClock(), masks,  # type: ignore[arg-type]
    )  # fmt: skip
    for round in (1, 2, 3):
        mask = masks.of("dev", 1, round)
        call = Call(Key("dev", round, 1), 0, 0.0, bytes(16))
        assert device.download_bytes(call, work) == 4 * mask.size
        body = received[mask.whole()].tobytes()
        sent = device.train(call, body, work, State(), (), DownloadTimes()).body
        before = narrower(mask.compact(received), layout, mask)
        after = narrower(mask.compact(received), layout, mask)
        step = torch.optim.SGD(after.parameters(), lr=work.training.learning_rate_at(round))
        examples = opened.client(1)
        draws = partial(stream, 5, "batches", "dev", round)
        for rows in minibatches(len(examples), work.training, draws):
            step.zero_grad()
            scores = after(torch.from_numpy(examples.x)[rows].flatten(1))
            loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(examples.y)[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            step.step()
        pairs = zip(before.parameters(), after.parameters(), strict=True)
        wanted = np.concatenate([(b - a).detach().numpy().ravel() for a, b in pairs])
        np.testing.assert_allclose(np.frombuffer(sent, "<f4"), wanted, atol=2e-6)


def narrower(part: Vector, layout: Layout, mask: Mask) -> torch.nn.Sequential:
    """A perceptron of the slice's shapes, with its weights."""
    shapes, first = [], 0
    for tensor in layout.schema.tensors:
        inside = mask.whole()[first : first + tensor.size].reshape(tensor.shape)
        rest = [tuple({*range(inside.ndim)} - {axis}) for axis in range(inside.ndim)]
        shapes.append([int(inside.any(axis=others).sum()) for others in rest])
        first += tensor.size
    layers: list[torch.nn.Module] = []
    for outputs, inputs in shapes[::2]:  # the others are biases
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    made = torch.nn.Sequential(*layers[:-1])
    torch.nn.utils.vector_to_parameters(torch.from_numpy(part.copy()), list(made.parameters()))
    return made

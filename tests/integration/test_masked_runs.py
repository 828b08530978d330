"""Runs whose devices train parts of the model: every update is trained again from the ledger, and
every version is made again by the paper's formula."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.retraining import Retrained, last_model, retrained_models
from torch import Tensor, nn

from muster.common.compression import CODECS, Codec
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.masks import MASKINGS, GroupMasks
from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.planning import plan
from muster.emulator.records.account import Account
from muster.emulator.records.summary import read_summary
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.programs import programs_of
from muster.simulation.whole_run import simulate_run
from muster.tasks.classification import Digits
from muster.tasks.models import Mlp
from muster.tasks.parts import layout_of, vector_of
from muster.tasks.task import Examples, OpenTask


def scenario(
    mask: dict[str, Any],
    rule: str | dict[str, Any] = "fedplt",
    capacity: float = 0.3,
    **sections: Any,
) -> Scenario:
    quick = {"capacity": capacity, "examples_per_s": 20}
    slow = {"capacity": 0.5, "examples_per_s": 2.5}
    values = {
        "name": "masks",
        "seed": 4,
        "clock": {"round_s": 4.0},
        "task": {"name": "digits", "hidden": [12, 6], "partition": {"kind": "dirichlet"}},
        "training": {"learning_rate": 0.1, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 8, "aggregator": rule, "evaluate_every": 8},
        "groups": [
            {"name": "part", "count": 4, "devices_per_process": 2, "mask": mask, "device": quick},
            {"name": "other", "count": 3, "mask": mask, "device": slow},
            {"name": "whole", "count": 1},
        ],
    }
    return validate(Scenario, {**values, **sections}, "masks")


def formula(
    theta: FloatArray, chosen: FloatArray, deltas: FloatArray, weights: FloatArray, psi: bool
) -> FloatArray:
    """θ + ψ ⊙ Σ c_k m_k ⊙ Δ_k, entry by entry."""
    result = theta.copy()
    for i in range(len(theta)):
        trained = [k for k in range(len(weights)) if chosen[k, i]]
        if trained:
            among = weights[trained].sum() if psi else weights.sum()
            result[i] += sum(weights[k] * deltas[k, i] for k in trained) / among
    return result


def recomputed(read: Scenario, folder: Path, psi: bool = True) -> tuple[FloatArray, list[Any]]:
    """The last model by the formula, from the calls and weights that the ledger has; and the
    coverage of every round, by hand."""
    coverage = []

    def next_model(row: Any, theta: FloatArray, updates: list[Retrained]) -> FloatArray:
        every = np.ones(len(theta), bool)
        chosen = np.array([every if u.mask is None else u.mask.whole() for u in updates], float)
        for update, inside in zip(updates, chosen, strict=True):
            assert update.row.mask_ratio == pytest.approx(inside.mean())
            assert update.row.bytes_up == 4 * inside.sum()
        weights = np.array([update.row.weight for update in updates])
        trained_by = weights @ chosen
        among = trained_by[trained_by > 0]
        largest = weights.sum() / among.min()
        coverage.append([(trained_by > 0).mean(), chosen.sum() / len(theta), largest])
        return formula(theta, chosen, np.array([u.delta for u in updates]), weights, psi)

    return retrained_models(read, folder, next_model)[-1], coverage


def coverage_of(folder: Path) -> FloatArray:
    """Of every round: the share of coordinates, updates per coordinate and the largest ψ."""
    with Account(folder) as account:
        found = account.estimates.query("name == 'coverage'")
    columns = found.pivot_table(index="round", columns="key", values="value")
    return columns[["share", "updates", "largest_psi"]].to_numpy(float)


BUFFERED = {"kind": "buffered", "k": 3, "concurrency": 5}
OPPORTUNISTIC = {"kind": "opportunistic", "max_staleness": 3}


@pytest.mark.parametrize(
    ("kind", "schedule", "rule", "mode"),
    [
        ("blocks", "static", "fedplt", None),
        ("blocks", "rotating", "fedplt", None),
        ("width", "rotating", "fedavg", None),
        ("width", "drawn", {"kind": "fedplt", "psi": False}, None),
        ("width", "static", "fedplt", BUFFERED),
        ("width", "drawn", "fedavg", OPPORTUNISTIC),
        ({"kind": "width", "download": "model"}, "drawn", "fedplt", None),
        ("random", "drawn", "fedplt", None),
        ("random", "rotating", "fedbuff", None),
        ("blocks", "rotating", "fedplt", BUFFERED),
        ("random", "drawn", "fedavg", OPPORTUNISTIC),
    ],
)
def test_the_model_is_that_of_the_formula(
    tmp_path: Path,
    kind: str | dict[str, Any],
    schedule: str,
    rule: str | dict[str, Any],
    mode: dict[str, Any] | None,
) -> None:
    server: dict[str, Any] = {"rounds": 8, "aggregator": rule, "evaluate_every": 8}
    if mode is not None:
        server |= {"mode": mode, "rounds": 14}
        server |= {"deadline_s": 4.0} if mode is OPPORTUNISTIC else {}
    kinds = kind if isinstance(kind, dict) else {"kind": kind}
    read = scenario({**kinds, "schedule": schedule}, server=server)
    folder = tmp_path / "run"
    assert simulate_run(read, folder) == "completed"
    wanted, coverage = recomputed(read, folder, psi=not isinstance(rule, dict))
    np.testing.assert_allclose(last_model(folder), wanted, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(coverage_of(folder), coverage, rtol=1e-9)
    if mode is not None:
        with Account(folder) as account:
            assert account.contributions["staleness"].max() >= 1


class Same(OpenTask):
    """Gives every client the same examples."""

    def __init__(self, population: int, seed: int) -> None:
        self._digits = Digits(name="digits", model=Mlp(hidden=[10])).open(12, seed)
        self.examples = self._digits.examples[:1] * population

    def client(self, index: int) -> Examples:
        return self._digits.client(0)

    def test(self) -> Examples:
        return self._digits.test()

    def module(self) -> nn.Module:
        return self._digits.module()

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self._digits.loss(outputs, y)


def same_for_all(population: int, seed: int) -> OpenTask:
    """`[task] name`."""
    return Same(population, seed)


@pytest.mark.parametrize("training", [{"local_steps": 1}, {"gradient": True}], ids=["step", "sgd"])
def test_identical_clients_with_masks_make_the_model_of_full_training_bit_for_bit(
    tmp_path: Path, training: dict[str, Any]
) -> None:
    """With one step on the same examples, every entry of an update is the same number whoever
    trained it, and so is the mean of any of them."""
    masks: dict[str, tuple[dict[str, Any] | None, float]] = {
        "whole": (None, 1.0),
        "blocks": ({"kind": "blocks", "schedule": "rotating"}, 0.4),
        "random": ({"kind": "random", "schedule": "static"}, 0.4),
        "tensors": ({"kind": "tensors"}, 0.9),
    }
    models = {}
    for name, (mask, capacity) in masks.items():
        group: dict[str, Any] = {"name": "dev", "count": 8, "device": {"capacity": capacity}}
        read = scenario(
            {"kind": "blocks"},
            task={"name": f"{__name__}:same_for_all"},
            training={"learning_rate": 0.2, "batch_size": "full", **training},
            groups=[group if mask is None else {**group, "mask": mask}],
        )
        assert simulate_run(read, tmp_path / name) == "completed"
        models[name] = last_model(tmp_path / name)
        if mask is not None:
            assert (coverage_of(tmp_path / name)[:, 2] > 1.5).all()
    for name, model in models.items():
        assert np.array_equal(model, models["whole"]), name


def test_a_coordinate_that_nobody_trains_keeps_its_bits(tmp_path: Path) -> None:
    mask = {"kind": "width", "schedule": "static"}
    group = {"name": "dev", "count": 3, "mask": mask, "device": {"capacity": 0.3}}
    decay = {"kind": "adam", "weight_decay": 0.1}
    read = scenario(mask, groups=[group], training={"optimizer": decay, "learning_rate": 0.01})
    assert simulate_run(read, tmp_path / "run") == "completed"
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    layout, initial = layout_of(opened.module()), vector_of(opened.module())
    masks = GroupMasks(MASKINGS.parse(mask), layout, 0.3, read.seed)  # type: ignore[arg-type]
    moved, inside = last_model(tmp_path / "run") != initial, masks.of("dev-1", 1, 1).whole()
    assert not moved[~inside].any()
    assert moved[inside].mean() > 0.8


@pytest.mark.parametrize("codec", ["float16", "int8", {"kind": "top-k", "ratio": 0.2}])
def test_codecs_and_masks_travel_together(tmp_path: Path, codec: Any) -> None:
    link = {"compression": codec}
    part = {"mask": {"kind": "blocks", "schedule": "rotating"}, "device": {"capacity": 0.25}}
    group = {"name": "dev", "count": 4, "link": link, **part}
    read = scenario({"kind": "blocks"}, groups=[group])
    assert simulate_run(read, tmp_path / "run") == "completed"
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    masking = read.groups[0].mask
    assert masking is not None
    masks = GroupMasks(masking, layout_of(opened.module()), 0.25, read.seed)
    found = CODECS.parse(codec)
    assert isinstance(found, Codec)
    with Account(tmp_path / "run") as account:
        sent: list[Any] = list(account.contributions.itertuples())
        clients = account.clients.set_index("client")
    for row in sent:
        mask = masks.of(row.client, int(clients["position"][row.client]), row.call_round)
        assert row.bytes_up == found.length(mask.size)
        assert row.mask_ratio == mask.ratio


def test_a_quarter_of_the_model_takes_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    bytes_up = {}
    for kind in ("whole", "blocks", "width", "random"):
        group: dict[str, Any] = {"name": "dev", "count": 4, "device": {"capacity": 0.25}}
        if kind != "whole":
            group["mask"] = {"kind": kind, "schedule": "rotating"}
        task = {"name": "digits", "hidden": [60]}
        assert simulate_run(scenario({}, groups=[group], task=task), tmp_path / kind) == "completed"
        bytes_up[kind] = read_summary(tmp_path / kind)["bytes_up"]
    for kind in ("blocks", "width", "random"):
        assert 0.23 < bytes_up[kind] / bytes_up["whole"] <= 0.25, kind


@pytest.mark.parametrize("hidden", [[60], [2600]], ids=["inline", "chunks"])
@pytest.mark.parametrize("schedule", ["static", "rotating", "drawn"])
def test_a_device_downloads_only_the_slice_that_it_trains(
    tmp_path: Path, hidden: list[int], schedule: str
) -> None:
    """The slice of a perceptron with U units and w of them: w rows of 64 entries, w biases, w
    columns of 10 entries, and 10 biases."""
    units = hidden[0]
    inside = 10 + 75 * ((int(0.25 * (75 * units + 10)) - 10) // 75)
    mask = {"kind": "width", "schedule": schedule}
    sections: dict[str, Any] = {"task": {"name": "digits", "hidden": hidden}}
    sections["server"] = {"rounds": 3, "aggregator": "fedplt"}
    narrow = {"name": "narrow", "count": 2, "mask": mask, "device": {"capacity": 0.25}}
    read = scenario({}, groups=[narrow, {"name": "whole", "count": 1}], **sections)
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        sent = account.contributions.groupby("client")[["bytes_up", "bytes_down"]].sum()
        totals = account.traffic_totals
    whole = 75 * units + 10
    expected = {f"narrow-000{number}": [12 * inside] * 2 for number in (0, 1)}
    expected["whole-0000"] = [12 * whole] * 2
    assert sent.T.to_dict(orient="list") == expected
    assert totals == (3 * 4 * (2 * inside + whole),) * 2


def test_the_plan_and_the_ledger_agree_on_who_is_late_with_a_slice(tmp_path: Path) -> None:
    """A slice of 2,260 bytes takes 2.26 s down and half of it up at 8 and 16 kbit/s, and the whole
    model of 18,040 bytes takes 27 s."""
    link = {"down": "8 kbit/s", "up": "16 kbit/s"}
    part = {"device": {"capacity": 0.13}, "link": link}
    groups = [
        {"name": "slice", "count": 2, "mask": "width", **part},
        {"name": "model", "count": 2, "mask": {"kind": "width", "download": "model"}, **part},
    ]
    read = scenario(
        {},
        groups=groups,
        task={"name": "digits", "hidden": [60]},
        server={"rounds": 3, "aggregator": "fedplt", "deadline_s": 4.0},
    )
    assert simulate_run(read, tmp_path / "run") == "completed"
    with Account(tmp_path / "run") as account:
        sent, answers = account.contributions, account.answers
    planned = {group.name: group.late.tolist() for group in plan(read).groups}
    assert planned == {"slice": [0, 0, 0], "model": [2, 2, 2]}
    for name, outcome in (("slice", "folded"), ("model", "late")):
        of_group = sent[sent["client"].str.startswith(name)]
        assert set(of_group["outcome"]) == {outcome}
        size = 4 * (10 + 75 * 7)
        down = size if name == "slice" else 4 * 4510
        assert set(of_group["bytes_down"]) == {down}
        durations = answers[answers["client"].str.startswith(name)]["modelled_s"]
        np.testing.assert_allclose(durations, down / 1000 + size / 2000)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"rule": "fedadam"}, "server.aggregator: 'fedadam' needs updates of the whole model"),
        ({"rule": "agnostic"}, "server.aggregator: 'agnostic' needs updates of the whole model"),
        (
            {"training": {"projection_radius": 2.0}},
            "mask: training.projection_radius = 2 would scale the parameters outside the mask",
        ),
    ],
)
def test_what_masks_cannot_work_with_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario({"kind": "blocks"}, **sections)


def test_a_mask_that_does_not_fit_the_model_is_refused_before_the_run(tmp_path: Path) -> None:
    read = scenario({"kind": "width"}, task={"name": "digits", "model": "softmax"})
    with pytest.raises(ConfigError, match=r"groups\[0\].mask: 'width' masks take hidden units"):
        programs_of(read, tmp_path)
    small = scenario({"kind": "blocks"}, capacity=0.05)
    with pytest.raises(ConfigError, match=r"groups\[0\].mask: the capacity 0.05 does not hold"):
        programs_of(small, tmp_path / "small")

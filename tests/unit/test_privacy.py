"""Differential privacy: its account, its noise, and what it is refused with."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant

from muster.client.training.local import train
from muster.client.training.settings import Training
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import stream
from muster.emulator.fleet.sampling import sample_of
from muster.emulator.records.privacy import ADDED_BY
from muster.emulator.report.privacy import TEXTS
from muster.emulator.scenario.local_work import announced_training
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregation.accountant import Accountant
from muster.server.aggregators import Contribution
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.fedbuff import FedBuff
from muster.server.settings.privacy import PLACES, DeviceSampling, Privacy, Where
from muster.server.updates.privacy import clipped_weights, noise_of
from muster.tasks.regression import LinearRegression


def spent(
    noise: float, releases: int, sample: DeviceSampling | None = None, **settings: Any
) -> float:
    found = Accountant(Privacy(clip=2.0, noise=noise, **settings), sample).epsilon(releases)
    assert found is not None
    return found


def phi(x: float) -> float:
    """The distribution function of the standard normal."""
    return math.erfc(-x / math.sqrt(2)) / 2


@pytest.mark.parametrize(("noise", "releases"), [(1.1, 1), (1.1, 100), (5.0, 30), (40.0, 1000)])
def test_epsilon_is_that_of_the_closed_form_of_gaussian_mechanisms(
    noise: float, releases: int
) -> None:
    epsilon, mu = spent(noise, releases), math.sqrt(releases) / noise
    # Balle and Wang 2018, theorem 8; releases compose to one mechanism (Dong, Roth, Su 2022).
    delta = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)


def test_epsilon_is_the_published_one() -> None:
    # The analytic Gaussian mechanism needs σ = 3.730632 for ε = 1 and δ = 1e-5 at sensitivity 1;
    # a device's own noise has to hide twice the clip.
    assert spent(3.730632, 1) == pytest.approx(1.0, rel=1e-5)
    assert spent(2 * 3.730632, 1, where="device") == pytest.approx(1.0, rel=1e-5)


def test_the_renyi_bound_of_the_library_lies_a_little_above() -> None:
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    renyi.compose(GaussianDpEvent(8.0), 50)
    bound = renyi.get_epsilon(1e-5)
    assert 0.9 * bound < spent(8.0, 50) < bound


@pytest.mark.parametrize(("noise", "releases"), [(1.1, 1), (8.0, 50), (300.0, 2)])
def test_noise_in_sums_has_the_renyi_bound_which_holds_for_discrete_gaussians(
    noise: float, releases: int
) -> None:
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    renyi.compose(GaussianDpEvent(noise), releases)
    found = spent(noise, releases, where="sum")
    assert found == pytest.approx(renyi.get_epsilon(1e-5), rel=1e-9)
    # The best order of the closed form of a concentrated bound (Bun and Steinke 2016, lemma 3.5).
    rho = releases / (2 * noise**2)
    assert found <= rho + 2 * math.sqrt(rho * math.log(1e5))
    assert spent(noise, releases) < found


def test_every_round_with_noise_of_devices_is_a_release_and_every_version_of_the_server() -> None:
    privacy = Privacy(clip=1.0, noise=1.0)
    for where, expected in (("server", 3), ("device", 5), ("sum", 5)):
        account = Accountant(privacy.model_copy(update={"where": where}), None)
        assert account.releases(rounds=5, versions=3) == expected


@pytest.mark.parametrize("releases", [1, 20])
def test_with_few_of_many_devices_epsilon_is_that_of_the_library_for_fixed_samples(
    releases: int,
) -> None:
    event = SampledWithoutReplacementDpEvent(1000, 10, GaussianDpEvent(1.1 / 2))
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    renyi.compose(event, releases)
    amplified = spent(1.1, releases, DeviceSampling(size=10, devices=1000))
    assert amplified == pytest.approx(renyi.get_epsilon(1e-5), rel=1e-12)
    assert amplified < spent(1.1, releases)


def test_sampling_never_makes_epsilon_larger_and_does_not_help_local_noise() -> None:
    assert spent(1.1, 9, DeviceSampling(size=900, devices=1000)) == spent(1.1, 9)
    few = DeviceSampling(size=10, devices=1000)
    assert spent(2.2, 9, few, where="device") == pytest.approx(spent(1.1, 9))
    assert spent(2.2, 9, few, where="sum") == spent(2.2, 9, where="sum")


def test_every_place_of_noise_has_its_facts_and_its_texts() -> None:
    for by_place in (PLACES, ADDED_BY, TEXTS):
        assert set(by_place) == set(get_args(Where))
    for place in PLACES.values():
        assert [place.in_versions, place.in_updates, place.in_sums].count(True) == 1


def test_nothing_is_spent_before_the_first_release_and_nothing_known_without_noise() -> None:
    assert spent(1.0, 0) == 0.0
    assert Accountant(Privacy(clip=1.0, noise=0.0), None).epsilon(3) is None
    assert math.isfinite(spent(1e-6, 10_000_000))
    assert spent(1e6, 1) == 0.0


def contribution(squared_norm: float, discount: float = 1.0, examples: int = 1) -> Contribution:
    return Contribution("c", "g", examples, 0, discount, squared_norm=squared_norm)


def test_updates_are_clipped_by_their_weights_and_count_alike() -> None:
    norms = [contribution(1.0, examples=9), contribution(16.0), contribution(4.0, 0.5)]
    weighing = clipped_weights([*norms, contribution(0.0)], FedAvg(kind="fedavg"), {}, 2.0)
    assert weighing.weights == [1.0, 0.5, 0.5, 1.0]
    assert weighing.normaliser == 3.5
    assert weighing.estimates == {"privacy": {"clipped": 1, "median_norm": 1.5}}
    buffered = clipped_weights(norms, FedBuff(kind="fedbuff", rate=0.5), {}, 2.0)
    assert buffered.normaliser == 6.0


def test_the_noise_has_its_variance_and_is_new_in_every_round() -> None:
    privacy = Privacy(clip=2.0, noise=1.5)
    noise = noise_of(privacy, 7, 1, 200_000)
    assert noise.dtype == np.float32
    # The standard error of a standard deviation is σ/√(2n).
    assert noise.std() == pytest.approx(3.0, abs=5 * 3.0 / math.sqrt(400_000))
    assert noise.mean() == pytest.approx(0.0, abs=5 * 3.0 / math.sqrt(200_000))
    np.testing.assert_array_equal(noise, noise_of(privacy, 7, 1, 200_000))
    others = [noise_of(privacy, 7, 2, 200_000), noise_of(privacy, 8, 1, 200_000)]
    for other in others:
        assert abs(np.corrcoef(noise, other)[0, 1]) < 5 / math.sqrt(200_000)


TASK = LinearRegression(name="linear", dimension=400).open(population=2, seed=1)
RECEIVED = np.zeros(sum(p.numel() for p in TASK.module().parameters()), np.float32)


def trained(round: int = 3, **settings: Any) -> Any:
    return train(
        TASK, TASK.module(), RECEIVED, TASK.client(0), Training(**settings), seed=5,
        client="dev-0", round=round, base_version=2,
    )  # fmt: skip


@pytest.mark.parametrize("trainer", [None, "muster.client.training.local:train"])
def test_a_device_clips_its_update_before_it_adds_noise(trainer: str | None) -> None:
    plain = trained().delta.astype(np.float64)
    size = np.linalg.norm(plain)
    noisy = trained(clip_update=size / 4, update_noise=0.3, trainer=trainer).delta
    added = noisy - plain / 4
    # In float32 the clipping and the sum are rounded.
    expected = stream(5, "privacy", "dev-0", 3).normal(0.0, 0.3, len(plain))
    np.testing.assert_allclose(added, expected, atol=1e-6)
    again = trained(clip_update=size / 4, update_noise=0.3, trainer=trainer).delta
    np.testing.assert_array_equal(noisy, again)
    assert np.abs(trained(4, clip_update=size / 4, update_noise=0.3).delta - noisy).max() > 0.1


def test_a_device_that_trains_nothing_adds_noise_too() -> None:
    delta = trained(local_steps=0, clip_update=1.0, update_noise=0.3).delta
    assert delta.std() == pytest.approx(0.3, rel=0.2)


@pytest.mark.parametrize("trainer", [None, "muster.client.training.local:train"])
def test_a_device_measures_its_loss_before_training(trainer: str | None) -> None:
    measured = trained(initial_loss=True, trainer=trainer)
    examples = TASK.client(0)
    errors = examples.x @ RECEIVED[: examples.x.shape[1]] - examples.y.ravel()
    assert measured.facts.initial_loss == pytest.approx(float((errors**2).mean() / 2), rel=1e-5)
    np.testing.assert_array_equal(measured.delta, trained(trainer=trainer).delta)
    assert trained().facts.initial_loss is None


def scenario(privacy: dict[str, Any] | None = None, **sections: Any) -> Scenario:
    server = {"rounds": 2, "privacy": {"clip": 1.0, "noise": 1.0, **(privacy or {})}}
    return validate(
        Scenario,
        {
            "name": "private",
            "task": {"name": "quadratic", "dimension": 2},
            "training": sections.get("training", {}),
            "server": {**server, **sections.get("server", {})},
            "clock": sections.get("clock", {}),
            "groups": [{"name": "g", "count": 10, **sections.get("group", {})}],
        },
        "test",
    )


@pytest.mark.parametrize(
    ("privacy", "sections", "complaint"),
    [
        ({}, {"server": {"aggregator": "fednova"}}, "'fednova' lives on weights of its own"),
        ({}, {"server": {"aggregator": "q-fedavg"}}, "'q-fedavg' lives on weights of its own"),
        ({}, {"server": {"aggregator": "fedasync"}}, "'fedasync' lives on weights of its own"),
        ({}, {"server": {"aggregator": "importance"}}, "weights of its own"),
        ({}, {"server": {"guard": {"max_norm": 5.0}}}, "how many it refuses depends on the data"),
        ({}, {"group": {"mask": {"kind": "random"}}}, "devices train different parts of it"),
        ({"where": "device"}, {"server": {"aggregator": "q-fedavg"}}, "needs losses of devices"),
        ({"where": "device"}, {"server": {"aggregator": "fednova"}}, "needs local steps of"),
        ({"where": "device"}, {"training": {"clip_update": 2.0}}, "sets clip_update"),
        ({}, {"training": {"update_noise": 2.0}}, "update_noise: 2 needs clip_update"),
    ],
)
def test_what_privacy_cannot_work_with_is_refused(
    privacy: dict[str, Any], sections: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario(privacy, **sections)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "rule", ["fedavg", "fedavgm", "fedadam", "fedadagrad", "fedyogi", "fedbuff"]
)
def test_rules_that_average_updates_can_be_private(rule: str) -> None:
    assert scenario(server={"aggregator": rule}).server.clip == 1.0


def test_devices_are_told_to_add_the_noise_only_if_they_do() -> None:
    for where, expected in (("device", (0.5, 1.0)), ("server", (None, 0.0))):
        given = scenario({"where": where, "clip": 0.5, "noise": 2.0})
        told = announced_training(given.training, given.server)
        assert (told.clip_update, told.update_noise) == expected


@pytest.mark.parametrize(
    ("sections", "sampled"),
    [
        ({}, True),
        ({"server": {"selection": "all"}}, False),
        ({"server": {"selection": {"kind": "weighted", "k": 4}}}, False),
        ({"server": {"selection": {"kind": "uniform", "k": 4, "over_selection": 1.5}}}, False),
        ({"server": {"deadline_s": 5.0}}, False),
        ({"server": {"goal": 3}}, False),
        ({"server": {"deadline_s": 5.0}, "clock": {"kind": "wall"}}, False),
        ({"server": {"mode": "opportunistic", "deadline_s": 5.0}}, False),
    ],
)
def test_amplification_is_claimed_only_for_uniform_samples_that_all_take_part(
    sections: dict[str, Any], sampled: bool
) -> None:
    server = {"selection": {"kind": "uniform", "k": 4}, **sections.get("server", {})}
    found = sample_of(scenario(**{**sections, "server": server}), 10)
    assert found == (DeviceSampling(size=4, devices=10) if sampled else None)

"""How wrong the weights of a run were: ρ = p/p̂, from the weight of every folded update.

The paper (section 6) bounds max |ρ − 1| by ε. A few devices that are hardly ever enrolled decide
this maximum. The step of its proof that uses ε (Lemma D.9) needs the mean square over the devices
only, so that is computed here as well.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from muster.client.availability.logistic import Logit
from muster.common.seeds import FloatArray
from muster.emulator.scenario.population import population
from muster.studies.results import Result


class WeightError(NamedTuple):
    """The errors of a run's weights.

    Attributes:
        root_mean_square: of ρ − 1 over the population, where ρ has the mean 1. An update with the
            inclusion probability p stands for 1/p devices.
        largest: max |ρ − 1| over the updates: the paper's ε.
        scatter: the standard deviation of ln ρ over the updates. It does not depend on the scale of
            the weights, and rare devices do not dominate it.
    """

    root_mean_square: float
    largest: float
    scatter: float


def weight_error(weights: FloatArray, chances: FloatArray) -> WeightError:
    """The errors of weights.

    Args:
        weights: the weight of each update, proportional to 1/p̂, > 0, shape (updates,).
        chances: the true inclusion probability p of each update, > 0, shape (updates,).
    """
    stands_for = 1 / chances
    ratios = weights * chances * (stands_for.sum() / weights.sum())
    off = ratios - 1
    mean_square = float(stands_for @ off**2 / stands_for.sum())
    return WeightError(
        math.sqrt(mean_square), float(np.abs(off).max()), float(np.log(ratios).std())
    )


def error_of(result: Result, rounds: range | None = None) -> WeightError:
    """The errors of the weights of a run, of all rounds or of some.

    Raises:
        RunFailed: the run did not end by itself.
    """
    sent = result.account.contributions
    folded = sent[sent["outcome"] == "folded"]
    if rounds is not None:
        folded = folded[folded["round"].isin(rounds)]
    return weight_error(folded["weight"].to_numpy(), inclusion(result, folded[["round", "client"]]))


def inclusion(result: Result, updates: pd.DataFrame) -> FloatArray:
    """The true inclusion probabilities πᵉ·πᵖ of updates, from the scenario and the ledger's X.

    Args:
        updates: a row for each update, with its `round` and `client`.
    """
    residents = {resident.client: resident for resident in population(result.scenario)}
    of_updates = [residents[client] for client in updates["client"]]
    willing = result.scenario.groups[0].participation.willing
    assert isinstance(willing, Logit)
    x = result.account.x.loc[list(updates.itertuples(index=False, name=None))]
    z = {name: np.array([resident.z[name] for resident in of_updates]) for name in willing.z}
    took_part = willing.chance(z, {name: x[name].to_numpy() for name in willing.x}, len(updates))
    return np.array([resident.propensity for resident in of_updates]) * took_part

"""The partition of appendix A.5 of FedUCA: groups of labels, and proportions within."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.common.errors import ConfigError
from muster.tasks import datasets
from muster.tasks.classification import Digits
from muster.tasks.partitions import ClassGroups, Share
from muster.tasks.partitions.class_groups import dealt

LABELS = np.repeat(np.arange(10), 600)


def shares_of(
    partition: ClassGroups, clients: int = 10, ratio: float = 0.2, seed: int = 1
) -> list[Share]:
    return partition.shares(LABELS, None, None, clients, seed, ratio)


def counts_of(rows: np.ndarray) -> list[int]:
    return [int(count) for count in np.bincount(LABELS[rows], minlength=10)]


def test_clients_of_a_group_share_its_labels_and_no_others() -> None:
    shares = shares_of(ClassGroups())
    for client, share in enumerate(shares):
        # 6,000 examples for 10 clients, a fifth of them for validation
        assert (len(share.training), len(share.validation)) == (480, 120)
        group = range(5) if client < 5 else range(5, 10)
        assert set(LABELS[np.concatenate(share)]) <= set(group)
    everything = np.concatenate([np.concatenate(share) for share in shares])
    assert np.sort(everything).tolist() == list(range(6000))


def test_a_large_concentration_gives_every_label_of_the_group_equally() -> None:
    even = ClassGroups(groups=5, alpha=1e6, validation_alpha=1e6, examples_per_client=100)
    for client, share in enumerate(shares_of(even)):
        of_group = [50 if label // 2 == client // 2 else 0 for label in range(10)]
        assert counts_of(share.training) == [int(0.8 * count) for count in of_group]
        assert counts_of(share.validation) == [int(0.2 * count) for count in of_group]


def test_training_and_validation_have_concentrations_of_their_own() -> None:
    apart = ClassGroups(alpha=1e6, validation_alpha=1e-6, examples_per_client=100)
    validated = set()
    for client, share in enumerate(shares_of(apart)):
        group = slice(0, 5) if client < 5 else slice(5, 10)
        assert counts_of(share.training)[group] == [16] * 5
        assert sorted(counts_of(share.validation)) == [0] * 9 + [20]
        validated.add(int(LABELS[share.validation][0]))
    assert len(validated) > 2


def test_a_label_that_many_want_is_shared_by_what_they_want() -> None:
    # 12 + 6 examples of label 0 are wanted, and there are 9: two thirds of them go to the first.
    # It lacks 6 examples then, and the second 3, and both get label 1.
    wanted = np.array([[1.0, 0.0], [0.5, 0.5]])
    found = dealt(wanted, np.array([12, 12]), np.array([9, 20]))
    assert found.tolist() == [[6, 6], [3, 9]]


def test_remainders_go_to_those_who_lack_most() -> None:
    found = dealt(np.array([[0.25, 0.38, 0.37]]), np.array([10]), np.array([9, 9, 9]))
    assert found.tolist() == [[2, 4, 4]]  # 2.5, 3.8, 3.7: 8 are whole, and .8 and .7 come first


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array),
    st.integers(1, 8),
    st.integers(1, 4),
    st.floats(0, 0.99),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**64 - 1),
)
def test_sizes_are_equal_and_no_example_is_given_out_twice(
    labels: np.ndarray, clients: int, groups: int, ratio: float, alpha: float, seed: int
) -> None:
    partition = ClassGroups(groups=groups, alpha=alpha)
    try:
        shares = partition.shares(labels, None, None, clients, seed, ratio)
    except ConfigError:
        return
    assert len(shares) == clients
    assert len({(len(train), len(out)) for train, out in shares}) == 1
    assert len(shares[0].training) >= 1
    given_out = np.concatenate([np.concatenate(share) for share in shares])
    assert len(np.unique(given_out)) == len(given_out)
    again = partition.shares(labels, None, None, clients, seed, ratio)
    assert [share.training.tolist() for share in again] == [s.training.tolist() for s in shares]


def test_other_seeds_draw_other_proportions() -> None:
    one, other = (shares_of(ClassGroups(), seed=seed)[0].training for seed in (1, 2))
    assert counts_of(one) != counts_of(other)


def test_a_task_trains_and_validates_on_these_shares() -> None:
    partition = ClassGroups(examples_per_client=100)
    opened = Digits(partition=partition, validation_ratio=0.3).open(population=10, seed=4)
    assert opened.examples == [70] * 10
    for client in range(10):
        training, validation = opened.client(client), opened.validation(client)
        assert (len(training), len(validation)) == (70, 30)
        assert {*training.y, *validation.y} <= set(range(5) if client < 5 else range(5, 10))


@pytest.mark.parametrize(
    ("partition", "clients", "message"),
    [
        (ClassGroups(groups=11), 20, "expected at most 10"),
        (ClassGroups(groups=3), 2, "there are 10 labels and 2 clients"),
        (ClassGroups(examples_per_client=601), 10, "at most 600 training examples each, found 601"),
        (ClassGroups(), 6001, "at most 0 training examples each"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    partition: ClassGroups, clients: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shares_of(partition, clients)


@pytest.mark.data
@pytest.mark.parametrize(("name", "each"), [("fashion-mnist", 6000), ("cifar10", 2000)])
def test_pictures_of_files_go_to_ten_institutes(name: str, each: int, published: Path) -> None:
    found = datasets.cifar10(published) if name == "cifar10" else datasets.idx(name, published)
    shares = ClassGroups().shares(found.train_y, None, None, 10, 1, 0.3)
    # As many examples as there are of a label: ten labels for ten institutes.
    sizes = (round(0.7 * each), round(0.3 * each))
    assert {(len(train), len(out)) for train, out in shares} == {sizes}
    for place, share in enumerate(shares):
        labels = set(found.train_y[np.concatenate(share)].tolist())
        assert labels <= set(range(5) if place < 5 else range(5, 10))


def test_pieces_that_overlap_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected another partition"):
        ClassGroups().shares(LABELS, None, np.zeros(len(LABELS), np.int64), 10, 1, 0.2)

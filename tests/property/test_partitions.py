import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.common.errors import ConfigError
from muster.tasks.partitions import (
    ByLabel,
    Dirichlet,
    Iid,
    Natural,
    Partition,
    QuantitySkew,
    Shards,
)

# Up to 60 examples with up to 6 labels, not all of which need occur.
label_arrays = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(
    lambda labels: np.array(labels, np.int64)
)
seeds = st.integers(0, 2**64 - 1)
partitions = st.one_of(
    st.just(Iid()),
    st.builds(
        Dirichlet,
        alpha=st.floats(1e-6, 1e6),
        minimum=st.integers(1, 3),
    ),
    st.builds(ByLabel, labels_per_client=st.integers(1, 3)),
    st.builds(Shards, shards_per_client=st.integers(1, 3)),
    st.builds(QuantitySkew, alpha=st.floats(1e-6, 1e6), minimum=st.integers(1, 3)),
)


def split_or_refusal(
    partition: Partition, labels: np.ndarray, clients: int, seed: int
) -> list[np.ndarray] | None:
    try:
        return partition.split(labels, clients, seed)
    except ConfigError:
        return None


@settings(deadline=None)
@given(partitions, label_arrays, st.integers(1, 12), seeds)
def test_each_example_goes_to_exactly_one_client_and_nobody_goes_without(
    partition: Partition, labels: np.ndarray, clients: int, seed: int
) -> None:
    shares = split_or_refusal(partition, labels, clients, seed)
    if shares is None:
        return
    assert len(shares) == clients
    assert all(share.dtype == np.int64 for share in shares)
    assert all(len(share) > 0 for share in shares)
    assert np.sort(np.concatenate(shares)).tolist() == list(range(len(labels)))


@settings(deadline=None)
@given(partitions, label_arrays, st.integers(1, 12), seeds)
def test_the_same_seed_gives_the_same_partition(
    partition: Partition, labels: np.ndarray, clients: int, seed: int
) -> None:
    first = split_or_refusal(partition, labels, clients, seed)
    again = split_or_refusal(partition, labels, clients, seed)
    assert (first is None) == (again is None)
    if first is not None and again is not None:
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)


@settings(deadline=None)
@given(label_arrays, st.integers(1, 12), seeds, st.floats(1e-6, 1e6), st.integers(1, 3))
def test_a_dirichlet_partition_exists_exactly_where_there_are_enough_examples(
    labels: np.ndarray, clients: int, seed: int, alpha: float, minimum: int
) -> None:
    partition = Dirichlet(alpha=alpha, minimum=minimum)
    shares = split_or_refusal(partition, labels, clients, seed)
    assert (shares is not None) == (len(labels) >= clients * minimum)
    if shares is not None:
        assert min(map(len, shares)) >= minimum


@settings(deadline=None)
@given(label_arrays, st.integers(1, 12), seeds)
def test_iid_sizes_differ_by_one_at_most(labels: np.ndarray, clients: int, seed: int) -> None:
    shares = split_or_refusal(Iid(), labels, clients, seed)
    assert (shares is not None) == (len(labels) >= clients)
    if shares is not None:
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(seeds, st.integers(1, 6), st.integers(6, 12))
def test_by_label_gives_each_client_its_number_of_labels_and_each_label_its_share_of_holders(
    seed: int, each: int, clients: int
) -> None:
    labels = np.repeat(np.arange(6), 20)
    shares = ByLabel(labels_per_client=each).split(labels, clients, seed)
    held = [set(labels[share].tolist()) for share in shares]
    assert all(len(some) == each for some in held)
    holders = [sum(label in some for some in held) for label in range(6)]
    assert max(holders) - min(holders) <= 1


@settings(deadline=None)
@given(label_arrays, st.integers(1, 12), seeds, st.integers(1, 3))
def test_shards_are_of_equal_size_and_hold_neighbours_in_the_order_of_labels(
    labels: np.ndarray, clients: int, seed: int, each: int
) -> None:
    shares = split_or_refusal(Shards(shards_per_client=each), labels, clients, seed)
    assert (shares is not None) == (len(labels) >= clients * each)
    if shares is None:
        return
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= each
    # A shard with c labels has c − 1 borders between labels inside, and there are 5 at most.
    borders = sum(len(np.unique(labels[share])) - each for share in shares)
    assert borders <= len(np.unique(labels)) - 1


def test_two_shards_of_mcmahan_are_two_labels() -> None:
    # 100 clients, 200 shards of 30, 300 examples of each label: no shard holds two.
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 300))
    shares = Shards().split(labels, 100, seed=1)
    assert {len(share) for share in shares} == {60}
    assert {len(np.unique(labels[share])) for share in shares} <= {1, 2}


@settings(deadline=None)
@given(label_arrays, st.integers(1, 12), seeds, st.floats(1e-6, 1e6), st.integers(1, 3))
def test_quantities_exist_exactly_where_there_are_enough_examples(
    labels: np.ndarray, clients: int, seed: int, alpha: float, minimum: int
) -> None:
    partition = QuantitySkew(alpha=alpha, minimum=minimum)
    shares = split_or_refusal(partition, labels, clients, seed)
    assert (shares is not None) == (len(labels) >= clients * minimum)
    if shares is not None:
        assert min(map(len, shares)) >= minimum


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12), seeds)
def test_the_natural_partition_gives_each_client_one_user(
    owners: list[int], clients: int, seed: int
) -> None:
    users = np.array(owners, np.int64)
    labels = np.zeros_like(users)
    if clients > len(set(owners)):
        with pytest.raises(ConfigError):
            Natural().split_of(labels, users, clients, seed)
        return
    shares = Natural().split_of(labels, users, clients, seed)
    held = [set(users[share].tolist()) for share in shares]
    assert all(len(some) == 1 for some in held)
    assert len(set.union(*held)) == clients
    assert sum(map(len, shares)) == sum(owners.count(user) for user in set.union(*held))
    again = Natural().split_of(labels, users, clients, seed)
    assert [share.tolist() for share in again] == [share.tolist() for share in shares]


def test_partitions_other_than_natural_do_not_look_at_users() -> None:
    users = np.arange(1000)
    for partition in (Iid(), Dirichlet(), ByLabel(), Shards(), QuantitySkew()):
        one = partition.split(TEN_LABELS, 10, seed=1)
        other = partition.split_of(TEN_LABELS, users, 10, seed=1)
        assert [share.tolist() for share in one] == [share.tolist() for share in other]


def test_a_small_alpha_makes_sizes_differ_and_a_large_one_makes_them_equal() -> None:
    def largest(alpha: float) -> int:
        return max(map(len, QuantitySkew(alpha=alpha).split(TEN_LABELS, 10, seed=1)))

    assert largest(0.01) > 900
    assert 150 < largest(0.5) < 600
    assert largest(1e6) < 105


TEN_LABELS = np.repeat(np.arange(10), 100)


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(), ByLabel(), Shards(), QuantitySkew()])
def test_another_seed_gives_another_partition(partition: Partition) -> None:
    one, other = (partition.split(TEN_LABELS, 10, seed) for seed in (1, 2))
    assert any(a.tolist() != b.tolist() for a, b in zip(one, other, strict=True))


def test_a_small_alpha_separates_labels_and_a_large_one_mixes_them() -> None:
    def largest_share_of_a_label(alpha: float) -> float:
        shares = Dirichlet(alpha=alpha).split(TEN_LABELS, 10, seed=1)
        counts = [np.bincount(TEN_LABELS[share], minlength=10) for share in shares]
        return float(np.mean(np.max(counts, axis=0) / 100))

    assert largest_share_of_a_label(0.01) > 0.9
    assert 0.3 < largest_share_of_a_label(0.5) < 0.7
    assert largest_share_of_a_label(1000) < 0.2


@pytest.mark.parametrize(
    ("partition", "clients", "message"),
    [
        (Iid(), 1001, "1001 clients .* need 1001, found 1000; take fewer clients"),
        (Dirichlet(minimum=5), 201, "201 clients with at least 5 .* need 1005, found 1000"),
        (ByLabel(labels_per_client=11), 5, "expected at most 10, .* found 11"),
        (ByLabel(labels_per_client=2), 4, "cannot hold all 10 labels; .* at least 5 clients"),
        (ByLabel(labels_per_client=1), 1001, "label . has 100 examples for 101 clients"),
        (Shards(), 501, "501 clients with at least 2 .* need 1002, found 1000"),
        (QuantitySkew(minimum=500), 3, "3 clients with at least 500 .* need 1500, found 1000"),
        (Natural(), 3, "these data have no users; .* uci-har, shakespeare"),
        (Iid(), 0, "at least one client, found 0"),
    ],
)
def test_what_cannot_be_given_out_is_refused_with_what_would_do(
    partition: Partition, clients: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        partition.split(TEN_LABELS, clients, seed=1)


def test_more_clients_than_users_are_refused_with_how_many_there_are() -> None:
    users = np.repeat(np.arange(4), 250)
    with pytest.raises(ConfigError, match=r"at most 4 clients, .* found 5"):
        Natural().split_of(TEN_LABELS, users, 5, seed=1)

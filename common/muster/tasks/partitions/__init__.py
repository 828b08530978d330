"""Partitions: which device holds which examples. The contract is in `contract`."""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.plugins import Registry
from muster.tasks.partitions.assigned import Assigned
from muster.tasks.partitions.class_groups import ClassGroups
from muster.tasks.partitions.contract import Indices, Labels, Partition, Share, once_each
from muster.tasks.partitions.label_skew import ByLabel, Dirichlet, Shards
from muster.tasks.partitions.labels_alike import Iid, QuantitySkew
from muster.tasks.partitions.natural import Natural

BUILT_IN: dict[str, type[Partition]] = {
    "assigned": Assigned,
    "by-label": ByLabel,
    "class-groups": ClassGroups,
    "dirichlet": Dirichlet,
    "iid": Iid,
    "natural": Natural,
    "quantity": QuantitySkew,
    "shards": Shards,
}
PARTITIONS = Registry("partition", "muster.partitions", BUILT_IN)
AnyPartition = Annotated[SerializeAsAny[Partition], BeforeValidator(PARTITIONS.parse)]
"""A partition as a setting."""

__all__ = [
    "BUILT_IN",
    "PARTITIONS",
    "AnyPartition",
    "Assigned",
    "ByLabel",
    "ClassGroups",
    "Dirichlet",
    "Iid",
    "Indices",
    "Labels",
    "Natural",
    "Partition",
    "QuantitySkew",
    "Shards",
    "Share",
    "once_each",
]

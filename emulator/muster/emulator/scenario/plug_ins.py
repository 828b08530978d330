"""The registries of the plug-ins that a scenario chooses by name."""

from collections.abc import Mapping
from typing import Any

from muster.client.availability import AVAILABILITIES
from muster.client.training.augmentations import AUGMENTATIONS
from muster.client.training.optimizers import OPTIMIZERS
from muster.common.compression import CODECS
from muster.common.distributions import DISTRIBUTIONS
from muster.common.masks import MASKINGS
from muster.common.plugins import Registry
from muster.common.schedules import SCHEDULES
from muster.emulator.faults.registry import FAULTS
from muster.emulator.scenario.enrollment import ENROLLMENTS
from muster.server.aggregators import AGGREGATORS
from muster.server.knowledge.propensity import CLASSIFIERS
from muster.server.rounds.modes import MODES
from muster.server.rounds.selection import SELECTIONS
from muster.server.rounds.staleness import STALENESS_WEIGHTS
from muster.tasks.models import MODELS
from muster.tasks.partitions import PARTITIONS
from muster.tasks.sources import SOURCES
from muster.tasks.tasks import TASKS
from muster.tasks.transforms import TRANSFORMS

PLUG_INS: Mapping[str, Registry[Any]] = {
    "task": TASKS,
    "task.model": MODELS,
    "task.partition": PARTITIONS,
    "task.source": SOURCES,
    "task.transforms": TRANSFORMS,
    "training.augmentations": AUGMENTATIONS,
    "training.optimizer": OPTIMIZERS,
    "training.learning_rate": SCHEDULES,
    "groups.covariates, groups.device, groups.link": DISTRIBUTIONS,
    "groups.enrollment": ENROLLMENTS,
    "groups.availability": AVAILABILITIES,
    "groups.mask": MASKINGS,
    "groups.link.compression": CODECS,
    "server.mode": MODES,
    "server.mode.staleness_weight": STALENESS_WEIGHTS,
    "server.selection": SELECTIONS,
    "server.aggregator": AGGREGATORS,
    "server.aggregator, its tables": CLASSIFIERS,
    "faults.do": FAULTS,
}
"""The registries, by the keys of the scenario that choose from them."""

"""What a rule or another feature of a scenario requires, and what a feature takes away.

`combinations` says which of them exclude each other.
"""

from enum import StrEnum


class Requirement(StrEnum):
    """What a rule, or another feature of a scenario, requires."""

    EACH_UPDATE = "each update by itself"
    """The rule compares, sorts or remembers updates, or gives them to a strategy; their weighted
    sum is not enough."""

    WHOLE_UPDATES = "whole updates"
    """The rule does not work with updates of parts of the model."""

    SAME_ROUND = "participation in the same round"
    """The rule learns from which of the called devices take part in a round."""

    EVERY_WEIGHT = "a weight for every device in every version"
    """The rule weighs all enrolled devices in every round, and tells them."""

    OWN_PART = "updates as devices sent them"
    """Devices compute their part in the model from the update that they sent."""

    RATIONAL_DEVICES = "valuations of all devices"
    """The rule needs the valuations of all devices."""

    EQUAL_STALENESS = "weights that do not depend on staleness"
    """The rule gives weights that a discount of stale updates would make wrong."""

    TRAINED_PARAMETERS = "trained parameters"
    """The rule averages the parameters that devices have trained."""

    LOCAL_TRAINING = "updates of local training"
    """The rule takes updates for the outcome of local training."""

    CONTROL_VARIATES = "control variates"
    """Devices correct their local steps by control variates."""

    PLAIN_SGD = "plain SGD"
    """The rule takes an update for the sum of the gradients of its local steps."""

    KNOWN_STEPS = "sums of gradients with known weights"
    """The rule must know how an update weighs the gradients of its local steps."""

    LOCAL_STEPS = "local steps told"
    """Devices tell the rule how many local steps they took."""

    LOSSES = "losses told"
    """Devices tell the rule their loss before training."""

    OWN_WEIGHTS = "weights of its own"
    """The rule uses more than the mean of the updates with equal weights."""

    TRUE_PROPENSITIES = "true propensities"
    """The rule is an oracle that knows how likely each device takes part."""

    TRUE_SHARES = "true shares of participation"
    """The rule is an oracle that knows each device's expected share in a round."""

    POPULATION = "covariates of the whole population"
    """The rule needs the covariates Z of devices that are not enrolled."""

    COVARIATES = "covariates Z"
    """The rule corrects for covariates Z."""

    STRATEGY = "the strategy of an app"
    """The strategy of an app decides about devices, replies and versions."""

    MASK = "training inside a mask"
    """No parameter outside a mask may move. (groups.mask)"""

    PARTIAL_SUMS = "sums of updates"
    """A process adds up the whole updates that its devices send in one round.
    (groups.partial_sums)"""

    BOUNDED_CHANGE = "a bounded change by each device"
    """Differential privacy needs to know how much one device can change the model.
    (server.privacy)"""

    CLIPPING = "clipping by the server"
    """The server clips every update and refuses none for its norm. (server.privacy on the
    server)"""

    CLIPPING_BY_DEVICES = "clipping by devices"
    """Privacy itself says how devices clip updates and add noise. (server.privacy on devices)"""

    KEPT_UPDATES = "updates that can be audited"
    """The server writes down every update. (server.keep_updates)"""

    OWN_MODEL = "a model of the device's own"
    """A rational device goes on training from its own model. (groups.participation)"""

    JUDGED_MODELS = "models that a device can judge"
    """A rational device compares whole models on its own examples before it takes part.
    (groups.participation)"""

    FITTED_UTILITY = "a weight to judge utilities at"
    """A rational device compares utilities at the weight that it is told. (groups.participation)"""

    REPORTED_UTILITY = "a utility to report"
    """A rational device reports its utility to a rule that tells it a weight.
    (groups.participation)"""

    SLOTS = "transfers within one round"
    """A channel slot is granted for the transfers of one round. (shared_link.slots in lockstep)"""

    GOAL = "rounds that a goal completes"
    """A number of updates completes a round. (server.goal)"""

    CONTROL = "a rule with control variates"
    """The scenario asks for what only a rule turns on. (training.control_variates)"""

    APP = "training and evaluation by an app"
    """The app trains and evaluates by itself. (a hosted task)"""


class Withholder(StrEnum):
    """What a feature of a scenario takes away from others."""

    MASK = "groups.mask"
    """Devices train parts of the model."""

    PARTIAL_SUMS = "groups.partial_sums"
    """The server gets weighted sums in place of updates."""

    LATE_SUMS = "groups.partial_sums on a running clock"
    """Whether a sum is missing turns out after it was decided who took part."""

    ONE_DEVICE = "devices_per_process = 1"
    """A process has one device."""

    LATER_ROUNDS = "updates that count in a later round"
    """The mode lets an update count in a later round than that of its call."""

    STALENESS_WEIGHT = "a staleness weight"
    """The mode lets the weight of a stale update fall."""

    SELECTION = "a selection of devices"
    """Rounds call only some devices."""

    MINIMUM = "server.minimum above 1"
    """Small rounds are empty."""

    COUNTED_VERSIONS = "a number of updates for each version"
    """The mode itself says how many updates make a version."""

    CODEC = "link.compression"
    """Updates do not arrive as they were sent."""

    GRADIENT = "training.gradient"
    """Devices return gradients and train nothing."""

    WEIGHTED_STEPS = "momentum, a proximal term"
    """Updates weigh the gradients of local steps differently, in a known way."""

    OTHER_STEPS = "other local training"
    """Updates are no sums of gradients with known weights."""

    TRAINER = "training.trainer"
    """A function of the user trains."""

    PROJECTION = "training.projection_radius"
    """Training moves all parameters onto a ball."""

    TOGETHER = "training.together"
    """Devices of a process train at the same time."""

    CLIPPED_UPDATES = "training.clip_update"
    """Devices clip their updates."""

    NOISY_UPDATES = "training.update_noise"
    """Devices add noise to their updates."""

    SERVER_PRIVACY = "server.privacy on the server"
    """The server clips updates, weighs all devices alike and adds noise."""

    DEVICE_PRIVACY = "server.privacy on devices"
    """Devices clip their updates and add noise, which hides updates and nothing else."""

    NORM_LIMIT = "server.guard.max_norm"
    """The server refuses long updates."""

    APP = "hosted tasks (Flower apps)"
    """An app trains and evaluates, and reports only updates."""

    NO_APP = "other tasks"
    """The task has no strategy."""

    RATIONAL = "rational devices"
    """Devices decide by themselves whether to take part, and train a model of their own."""

    COMPLIANT = "devices that are not rational"
    """Some devices value no model."""

    NO_CONTROL = "aggregators without control variates"
    """Devices keep no control variates."""

    UNTOLD_WEIGHTS = "aggregators that tell no weights"
    """Devices are told no weights."""

    SLOTS = "shared_link.slots"
    """Devices wait for channel slots before they transfer."""

    SHARED_RATE = "shared links in lockstep"
    """The durations of transfers follow from which devices transfer."""

    GPU = "device.torch_device"
    """Devices train on a GPU."""

    NO_ACCURACY = "tasks without an accuracy"
    """Models of the task have no accuracy."""

    NO_VALIDATION = "task.validation_ratio = 0"
    """Devices hold out no examples."""

    LIMITED_INFORMATION = "server.information = 'limited'"
    """The server does not know the devices that are not enrolled."""

    NO_COVARIATES = "no covariates Z"
    """No group has covariates Z."""

    LIFE_FAULTS = "faults of device life"
    """Devices take part less often than their models say."""

    LABEL_FAULTS = "the fault label-flip"
    """A fault changes examples."""

    TRAINING_SETTINGS = "settings of training"
    """The scenario says how devices train."""

    GROUP_LENGTHS = "groups.training"
    """The scenario says how long the devices of a group train."""

    MEASUREMENTS = "evaluation on groups or devices"
    """muster evaluates models on the examples of groups or devices."""

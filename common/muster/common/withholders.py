"""What a feature of a scenario takes away from others: see `muster.common.requirements`."""

from enum import StrEnum


class Withholder(StrEnum):
    """What a feature of a scenario takes away from others."""

    MASK = "groups.mask"
    """Devices train parts of the model."""

    DRAWN_MASK = "a drawn schedule of `groups.mask`"
    """Each device draws its part anew for every round, so that no two have the same."""

    PARTIAL_SUMS = "groups.partial_sums"
    """The server gets weighted sums in place of updates."""

    SECURE_SUMS = "server.secure"
    """The server gets the weighted sum of the updates of a round."""

    LATE_SUMS = "groups.partial_sums on a running clock"
    """Whether a sum is missing turns out after it was decided who took part."""

    ONE_DEVICE = "devices_per_process = 1"
    """A process has one device."""

    PACKED = "devices_per_process above 1"
    """Devices share a process and its connection."""

    NO_LINKS = "no groups.link"
    """No group has an emulated link."""

    LATER_ROUNDS = "updates that count in a later round"
    """The mode lets an update count in a later round than that of its call."""

    STALENESS_WEIGHT = "a staleness weight"
    """The mode lets the weight of a stale update fall."""

    SELECTION = "a selection of devices"
    """Rounds call only some devices."""

    PREFERENCE = "a selection that prefers some devices"
    """Rounds call some devices more often than others."""

    PRESENT_SELECTION = "a selection on a running clock"
    """Rounds select among the devices that are present."""

    RUNNING_CLOCK = "clocks that run"
    """Updates count when they arrive. (clock.kind = "wall" or "scaled")"""

    SCALED_TIME = "clock.scale other than 1"
    """Scenario time runs faster than wall time."""

    NO_DEADLINE = "no server.deadline_s"
    """Rounds have no deadline."""

    NO_DURATION = "devices whose work takes no time"
    """Work of a group has no modelled duration."""

    MINIMUM = "server.minimum above 1"
    """Small rounds are empty."""

    SMALL_ROUNDS = "server.minimum below 3"
    """A round may have one or two updates."""

    COUNTED_VERSIONS = "a number of updates for each version"
    """The mode itself says how many updates make a version."""

    COUNTED = "models with counted buffers"
    """Forward passes change a part of the model, for example running statistics."""

    PARTS = "task.parts"
    """The scenario gives entries of the model other roles."""

    FROZEN_PARTS = "task.parts.frozen"
    """Some entries of the model never change."""

    LOCAL_PARTS = "task.parts.local"
    """Some entries of the model stay on their device."""

    CODEC = "link.compression"
    """Updates do not arrive as they were sent."""

    GRADIENT = "training.gradient"
    """Devices return gradients and train nothing."""

    GROUP_RATES = "groups.training.learning_rate"
    """Devices of a group have a learning rate of their own."""

    WEIGHTED_STEPS = "momentum, a proximal term"
    """Updates weigh the gradients of local steps differently, in a known way."""

    OTHER_STEPS = "other local training"
    """Updates are no sums of gradients with known weights."""

    TRAINER = "training.trainer"
    """A function of the user trains."""

    BY_DEVICE = "training.by_device"
    """A function of the user says what differs for each device."""

    PROJECTION = "training.projection_radius"
    """Training moves all parameters onto a ball."""

    NO_PROJECTION = "training without a projection"
    """Training may move parameters as far as it likes."""

    TOGETHER = "training.together"
    """Devices of a process train at the same time."""

    OPTIMIZER = "training.optimizer"
    """The optimizer of local steps is not plain SGD."""

    OWN_OPTIMIZER = "an optimizer of one's own"
    """A class of the user takes the local steps."""

    PROXIMAL = "training.proximal_mu"
    """A proximal term acts on local steps."""

    CLIPPED_STEPS = "training.clip_norm"
    """The gradients of local steps are clipped."""

    CLIPPED_UPDATES = "training.clip_update"
    """Devices clip their updates."""

    UNCLIPPED_UPDATES = "no training.clip_update"
    """Updates with noise may have any norm."""

    NOISY_UPDATES = "training.update_noise"
    """Devices add noise to their updates."""

    EQUAL_WEIGHTS = "server.privacy on the server or in sums"
    """The server weighs all devices alike, but for updates that are clipped."""

    SERVER_PRIVACY = "server.privacy on the server"
    """The server clips updates and adds noise."""

    SUM_PRIVACY = "server.privacy in sums"
    """Devices add noise, which hides the sum of their updates and nothing else."""

    NO_SECURE_SUMS = "no server.secure"
    """The server gets updates."""

    EXACT_SUMS = "no server.secure.range"
    """Secure sums are exact, so updates are not on a grid."""

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

    GROUP_TRAINING = "groups.training"
    """The scenario says how the devices of a group train."""

    SERVER_EVALUATION = "evaluation beside the server alone"
    """Models are evaluated where no device's own entries are."""

    MEASUREMENTS = "evaluation on groups or devices"
    """muster evaluates models on the examples of groups or devices."""

    NO_BATTERY = "devices without a battery"
    """Devices of a group have no battery."""

    NO_SPEED = "no device.examples_per_s"
    """Training of a group takes no modelled time."""

    NO_GATEWAY = "groups without a link"
    """A group reaches the server without a gateway."""

    NO_RATES = "links without rates"
    """The links of a group have no rates."""

    NUMBERS = "tasks that predict numbers"
    """The task has no labels."""

    NO_PICTURES = "tasks without pictures"
    """The examples of the task are no pictures."""

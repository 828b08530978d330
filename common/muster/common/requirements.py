"""What a rule or another feature of a scenario requires.

`muster.common.withholders` has what a feature takes away, and
`muster.server.aggregators.combinations` which of them exclude each other.
"""

from enum import StrEnum


class Requirement(StrEnum):
    """What a rule, or another feature of a scenario, requires."""

    EACH_UPDATE = "each update by itself"
    """The rule compares, sorts or remembers updates, or gives them to a strategy; their weighted
    sum is not enough."""

    WHOLE_UPDATES = "whole updates"
    """The rule does not work with updates of parts of the model."""

    KNOWN_COHORT = "weights of all updates at once"
    """The rule weighs updates when it is known which of them count."""

    REMEMBERED = "updates that are added again"
    """The rule adds updates of earlier rounds to later versions."""

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

    ONE_RATE = "one learning rate"
    """The rule computes with the learning rate of local training."""

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

    EQUAL_CALLS = "equally frequent calls"
    """The weights assume that every device is called equally often."""

    EVERY_CALL = "calls of all devices"
    """The divisor of the weighted sum assumes that a round calls every device."""

    CALLS_OF_ABSENT = "calls of absent devices"
    """The rule learns from devices that were called and did not take part."""

    PROJECTION = "projected local training"
    """The rule multiplies the parameters, so that only a projection keeps them bounded."""

    STRATEGY = "the strategy of an app"
    """The strategy of an app decides about devices, replies and versions."""

    MASK = "training inside a mask"
    """No parameter outside a mask may move. (groups.mask)"""

    PARTIAL_SUMS = "sums of updates"
    """A process adds up the whole updates that its devices send in one round.
    (groups.partial_sums)"""

    SECURE_SUMS = "secure sums"
    """The server gets the sum of the whole updates of a round, and no update. (server.secure)"""

    BOUNDED_CHANGE = "a bounded change by each device"
    """Differential privacy needs to know how much one device can change the model.
    (server.privacy)"""

    CLIPPING = "clipping by weights"
    """Every update is clipped by its weight and none is refused for its norm. (server.privacy on
    the server and in sums)"""

    CLIPPING_BY_DEVICES = "clipping by devices"
    """Privacy itself says how devices clip updates and add noise. (server.privacy on devices)"""

    NOISY_SUMS = "noise that adds up in secure sums"
    """Devices add parts of the noise to whole numbers, of which the server gets the sum alone.
    (server.privacy in sums)"""

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

    GRANTS = "slots that are granted in modelled time"
    """Which devices get a channel slot follows from modelled durations. (shared_link.slots)"""

    DRAWN_CALLS = "calls that the mode draws"
    """The mode itself decides which devices work. (server.mode)"""

    DEADLINE = "rounds that end though devices leave"
    """Devices may leave during a round. (clock.kind = "wall" or "scaled")"""

    MODELLED_WORK = "work that takes modelled time"
    """A round lasts as long as its modelled work. (clock.kind = "modelled")"""

    OWN_LINK = "a connection for each device"
    """Each device has a link of its own. (groups.link)"""

    WALL_TIME = "transfers in wall time"
    """Links are real and run in wall time. (groups.link)"""

    MEASURED_LINKS = "links to measure"
    """The run begins with a measurement of its links. (verify)"""

    GOAL = "rounds that a goal completes"
    """A number of updates completes a round. (server.goal)"""

    GRADIENT = "gradients in place of local steps"
    """Devices return a gradient and take no local step. (training.gradient)"""

    TOGETHER = "devices that train at the same time"
    """Devices of a process train as one computation. (training.together)"""

    NOISE = "noise that hides an update"
    """Devices add noise to updates of a known largest norm. (training.update_noise)"""

    AUGMENTATIONS = "examples that are augmented"
    """Devices change the examples of their minibatches at random. (training.augmentations)"""

    PICTURES = "pictures"
    """An augmentation acts on pictures. (training.augmentations)"""

    KEPT_STATE = "a trainer that keeps a state"
    """A function of the user trains, and keeps a state on the device. (training.trainer)"""

    CONTROL = "a rule with control variates"
    """The scenario asks for what only a rule turns on. (training.control_variates)"""

    LOCAL_PARTS = "devices with entries of their own"
    """Some entries of the model stay on their device, and differ between devices.
    (task.parts.local)"""

    DEVICE_METRICS = "evaluation by devices"
    """Devices evaluate the models that they receive, and report the result. (server.evaluate_on)"""

    APP = "training and evaluation by an app"
    """The app trains and evaluates by itself. (a hosted task)"""

    BATTERY = "a battery"
    """A fault acts on batteries of devices. (faults)"""

    SPEED = "training that takes modelled time"
    """A fault changes the speed of training. (faults)"""

    KEPT_UPDATE = "an update that the device has kept"
    """A fault sends an update of an earlier round. (faults)"""

    SENT_UPDATE = "updates on their way"
    """A fault damages updates on their way. (faults)"""

    GATEWAY = "a gateway"
    """A fault acts at the gateway of a group. (faults)"""

    RATES = "links with rates"
    """A fault changes the rates of links. (faults)"""

    LABELS = "labels of a classification"
    """A fault changes labels. (faults)"""

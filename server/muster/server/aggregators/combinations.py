"""Which combinations exist: the table of everything that a requirement and a withholder exclude.

A requirement is what a feature needs, for example each single update; a withholder is what takes it
away, for example partial sums. Rules, modes, faults and settings declare theirs.

A combination that is not in the table, and that no rule or mode refuses by itself, runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from muster.common.requirements import Requirement as R
from muster.common.withholders import Withholder as W


class Required(NamedTuple):
    """A requirement of a feature.

    Attributes:
        by: the feature's name: that of the rule, or the key of a setting.
        place: the key of the group that has the feature; empty if it concerns the whole scenario.
        key: the key of the feature if several can have the requirement, for example several faults.
    """

    requirement: R
    by: str
    place: str = ""
    key: str = ""


class Withheld(NamedTuple):
    """What a feature of a scenario takes away.

    Attributes:
        found: what the scenario says, as it stands in the sentence.
        place: as in `Required`.
    """

    withholder: W
    found: str = ""
    place: str = ""


def excluded(required: Iterable[Required], withheld: Iterable[Withheld]) -> Iterator[str]:
    """Yield a sentence for everything that is required and withheld, each once. What one group
    requires, another group cannot withhold."""
    said = set[str]()
    taken: dict[W, dict[str, list[Withheld]]] = {}
    for other in withheld:
        taken.setdefault(other.withholder, {}).setdefault(other.place, []).append(other)
    for need in required:
        for withholder, template in _refusals_of(need.requirement):
            by_place = taken.get(withholder, {})
            places = ("", need.place) if need.place else tuple(by_place)
            for other in (each for place in places for each in by_place.get(place, ())):
                place = need.place or other.place
                sentence = template.format(by=need.by, found=other.found, place=place, key=need.key)
                if sentence not in said:
                    said.add(sentence)
                    yield sentence


@cache
def _refusals_of(requirement: R) -> Sequence[tuple[W, str]]:
    """What excludes a requirement, with the sentences."""
    return [(withholder, said) for (of, withholder), said in REFUSED.items() if of == requirement]


def excludes(required: Iterable[R], withholder: W) -> bool:
    """Return whether any of these requirements and the withholder exclude each other."""
    return any((requirement, withholder) in REFUSED for requirement in required)


REFUSED: Mapping[tuple[R, W], str] = {
    (R.EACH_UPDATE, W.PARTIAL_SUMS): "server.aggregator: {by!r} needs the updates themselves, but "
    "with groups.partial_sums the server gets weighted sums; take a rule that weighs updates, for "
    "example fedavg, fednova, fedadam or scaffold",
    (R.WHOLE_UPDATES, W.MASK): "server.aggregator: {by!r} needs updates of the whole model, but a "
    "group has a mask; take 'fedplt', or another rule that works with masks (docs/masks.md), or "
    "leave out groups.mask",
    (
        R.REMEMBERED,
        W.COUNTED,
    ): "task.model: {by!r} adds remembered updates to later versions, which "
    "would move {found} by the same amount again and again; take a rule that remembers none, for "
    "example fedavg, or a model without such buffers (group or layer normalisation)",
    (R.SAME_ROUND, W.LATER_ROUNDS): "server.aggregator: {by!r} estimates which of the called "
    "devices take part in the same round, but with server.mode {found!r} an update may count in a "
    "later one; take a rule such as fedavg, or the synchronous mode",
    (R.SAME_ROUND, W.LATE_SUMS): "server.aggregator: {by!r} learns from who took part, which is "
    "decided before a sum may turn out to be missing; expected clock.kind = 'rounds' with "
    "groups.partial_sums",
    (R.EVERY_WEIGHT, W.SELECTION): "server.aggregator: {by} tells every device its weight in every "
    "version, but server.selection is {found!r}; expected 'all'",
    (R.EVERY_WEIGHT, W.LATER_ROUNDS): "server.aggregator: {by} weighs all devices of a round, but "
    "updates may count in a later one; take server.mode = 'synchronous'",
    (R.EVERY_WEIGHT, W.MINIMUM): "server.aggregator: {by} makes a version in every round, also "
    "without updates, but server.minimum = {found} makes small rounds empty; expected 1",
    (R.OWN_PART, W.CODEC): "server.aggregator: with {by} devices compute their part in the model "
    "from the update that they sent, but a group has link.compression = {found!r}; leave that out",
    (R.RATIONAL_DEVICES, W.COMPLIANT): "server.aggregator: {by} needs the valuations of all "
    "devices, but some are not rational; set participation.kind = 'rational' in every group",
    (R.EQUAL_STALENESS, W.STALENESS_WEIGHT): "server.aggregator: the weights of {by!r} do not "
    "depend on how stale an update is; set server.mode.staleness_weight = 'constant'",
    (R.TRAINED_PARAMETERS, W.GRADIENT): "server.aggregator: it averages parameters, but with "
    "training.gradient devices return none; take a rule that weighs updates, for example fedavg",
    (R.LOCAL_TRAINING, W.GRADIENT): "server.aggregator: {by} needs updates of local training, but "
    "with training.gradient devices return gradients; leave training.gradient out",
    (R.CONTROL_VARIATES, W.LATER_ROUNDS): "server.aggregator: with {by!r} devices correct local "
    "steps by the control variate c of the version that they train from, so an update that counts "
    "in a later round would change c by a wrong amount; take server.mode = 'synchronous'",
    (R.CONTROL_VARIATES, W.CODEC): "server.aggregator: with {by!r} c is the mean of the control "
    "variates that devices keep, which holds only if updates arrive as they were sent, but a group "
    "has link.compression = {found!r}; leave that out",
    (R.CONTROL_VARIATES, W.TOGETHER): "training.together: devices with control variates train one "
    "after the other, and {by!r} has control variates; leave it out",
    (R.CONTROL_VARIATES, W.RATIONAL): "server.aggregator: rational devices go on training from a "
    "model of their own, for which {by!r} has no control variate; take a rule without control "
    "variates, for example fedavg",
    (R.CONTROL_VARIATES, W.DEVICE_PRIVACY): "server.privacy: noise in updates would not hide the "
    "control variates that devices send with the aggregator {by!r}; take a rule that needs only "
    "updates, for example fedavg",
    (R.CONTROL_VARIATES, W.APP): "server.aggregator: {by!r} corrects local steps, which are the "
    "app's own; take a rule without control variates, for example fedavg",
    (R.CONTROL_VARIATES, W.COUNTED): "task.model: {by!r} corrects gradients by control variates, "
    "and {found} have none; take a rule without control variates, for example fedavg, or a model "
    "without such buffers (group or layer normalisation)",
    (R.CONTROL_VARIATES, W.LOCAL_PARTS): "task.parts.local: {by!r} corrects gradients by control "
    "variates, and {found} have none, because they stay on their device; take a rule without "
    "control variates, for example fedavg",
    (R.PLAIN_SGD, W.WEIGHTED_STEPS): "server.aggregator: {by!r} takes Δ/(K·η) for the mean "
    "gradient of K local steps, which holds only for plain SGD, but found {found}; leave that out",
    (R.PLAIN_SGD, W.OTHER_STEPS): "server.aggregator: {by!r} takes Δ/(K·η) for the mean gradient "
    "of K local steps, which holds only for plain SGD, but found {found}; leave that out",
    (R.KNOWN_STEPS, W.OTHER_STEPS): "server.aggregator: {by} needs updates that are sums of "
    "gradients with known weights, which are known for sgd, sgd with momentum, and sgd with a "
    "proximal term, but found {found}; leave that out, or take fedavg",
    (R.ONE_RATE, W.GROUP_RATES): "server.aggregator: {by!r} computes with the learning rate of "
    "training, but {place} has its own, {found}; leave that out, or set smoothness of the "
    "aggregator",
    (R.LOCAL_STEPS, W.DEVICE_PRIVACY): "server.privacy: where = 'device' hides updates alone, but "
    "the aggregator {by!r} also needs local steps of devices; take a rule that needs only updates, "
    "for example fedavg",
    (R.LOCAL_STEPS, W.APP): "server.aggregator: {by!r} needs the local steps of devices, which an "
    "app does not report; take a rule that needs only updates, for example fedavg",
    (R.LOSSES, W.DEVICE_PRIVACY): "server.privacy: where = 'device' hides updates alone, but the "
    "aggregator {by!r} also needs losses of devices; take a rule that needs only updates, for "
    "example fedavg",
    (R.LOSSES, W.APP): "server.aggregator: {by!r} needs the initial losses of devices, which an "
    "app does not report; take a rule that needs only updates, for example fedavg",
    (R.OWN_WEIGHTS, W.EQUAL_WEIGHTS): "server.privacy: the server weighs all devices alike, but "
    "the aggregator {by!r} lives on weights of its own; take a rule that averages updates, for "
    "example fedavg, fedadam or fedbuff{found}",
    (R.TRUE_PROPENSITIES, W.RATIONAL): "server.aggregator: {by!r} needs the true propensities, "
    "which nobody knows of rational devices; take a rule that needs none",
    (R.TRUE_SHARES, W.RATIONAL): "server.aggregator: {by!r} needs the true shares, which nobody "
    "knows of rational devices; take a rule that needs none",
    (R.TRUE_SHARES, W.LIFE_FAULTS): "faults: the aggregator {by!r} weighs by shares of "
    "participation that are computed without faults; leave out faults of device life, or take "
    "another rule",
    (R.POPULATION, W.LIMITED_INFORMATION): "server.aggregator: it needs covariates Z of devices "
    "that are not enrolled, but with server.information = 'limited' the server knows only the "
    "population's means; take 'calibrated', which works with means, or set server.information = "
    "'full'",
    (R.COVARIATES, W.NO_COVARIATES): "server.aggregator: it corrects for covariates Z, but no "
    "group has any; name some in groups.covariates.z",
    (R.EQUAL_CALLS, W.PREFERENCE): "server.aggregator: the weights of {by!r} assume that every "
    "device is called equally often, but with server.selection = {found!r} some are called more "
    "often; expected 'all' or 'uniform'",
    (R.EVERY_CALL, W.SELECTION): "server.aggregator: normalise = 'horvitz-thompson' needs every "
    "device called, but server.selection is {found!r}; expected 'all', or normalise = 'hajek'",
    (R.CALLS_OF_ABSENT, W.PRESENT_SELECTION): "server.aggregator: {by!r} learns from absent "
    "devices, which with server.selection = {found!r} are called only in lockstep, so their rows "
    "would outnumber those of the others; expected clock.kind = 'rounds', or server.selection = "
    "'all'",
    (R.PROJECTION, W.NO_PROJECTION): "server.aggregator: {by} (equation 10) multiplies the "
    "parameters by N/|S|·Σ p, whose mean is above 1, so it diverges by itself; set "
    "training.projection_radius, or take 'weighted-normalised'",
    (R.STRATEGY, W.NO_APP): "server.aggregator: {by!r} runs the strategy of a Flower app, but the "
    "task has none; set task.name = 'flower', or take a rule of muster",
    (R.STRATEGY, W.SELECTION): "server.aggregator: with {by!r} the strategy of the app chooses the "
    "devices of a round, but server.selection is {found!r}; leave it out",
    (R.STRATEGY, W.LATER_ROUNDS): "server.aggregator: with {by!r} the strategy waits for the "
    "replies of a round, so an update cannot count in a later one; take server.mode = "
    "'synchronous'",
    (R.STRATEGY, W.MINIMUM): "server.aggregator: with {by!r} the strategy decides how many replies "
    "it needs, but server.minimum = {found}; leave it out",
    (R.MASK, W.COUNTED): "{place}.mask: a mask says which entries are trained, but forward passes "
    "change {found}, whatever is trained; leave the mask out, or take a model without such buffers "
    "(group or layer normalisation)",
    (R.MASK, W.PARTS): "{place}.mask: a mask is drawn from the units of a model of which all "
    "parameters travel, but task.parts gives some another role; leave one of them out",
    (R.MASK, W.TRAINER): "{place}.mask: muster's own training keeps to masks, but training.trainer "
    "is {found!r}; expected no trainer with masks",
    (R.MASK, W.PROJECTION): "{place}.mask: training.projection_radius = {found} would scale the "
    "parameters outside the mask too; expected none with masks",
    (R.MASK, W.TOGETHER): "{place}.mask: devices with masks train one after the other, but "
    "training.together is {found}; leave one of them out",
    (R.PARTIAL_SUMS, W.ONE_DEVICE): "{place}.partial_sums: a process adds up the updates of its "
    "devices, but has only one; expected more than 1 in devices_per_process, or partial_sums = "
    "false",
    (R.PARTIAL_SUMS, W.MASK): "{place}.partial_sums: a sum of whole updates is sent, but devices "
    "with groups.mask train different parts of the model; leave one of them out",
    (R.PARTIAL_SUMS, W.RATIONAL): "{place}.partial_sums: rational devices judge the model anew if "
    "their process is restarted, and might then withhold an update that the server counts; leave "
    "one of them out",
    (R.PARTIAL_SUMS, W.LATER_ROUNDS): "server.mode: with {found!r} an update may count in a later "
    "round, but a process holds the updates of one round for its sum; expected the synchronous "
    "mode",
    (R.EACH_UPDATE, W.SECURE_SUMS): "server.aggregator: {by!r} needs the updates themselves, but "
    "with server.secure the server gets only their sum; take a rule that weighs updates on "
    "arrival, for example fedavg or fedadam",
    (R.KNOWN_COHORT, W.SECURE_SUMS): "server.aggregator: {by!r} weighs updates when the round has "
    "closed, but with server.secure a device may drop out after it was told its weight; take a "
    "rule that weighs updates on arrival, for example fedavg or fedadam",
    (R.SECURE_SUMS, W.SMALL_ROUNDS): "server.secure: from the sum of two updates each device could "
    "compute the other's; expected server.minimum = 3 or more, found {found}",
    (R.PARTIAL_SUMS, W.SECURE_SUMS): "{place}.partial_sums: with server.secure every device of a "
    "process hides its own update; leave one of them out",
    (
        R.SECURE_SUMS,
        W.DRAWN_MASK,
    ): "server.secure: a sum has updates of one part of the model, "
    "but each device of group {found!r} draws a part of its own; expected groups.mask with "
    "schedule = 'static' or 'rotating', or leave out server.secure",
    (R.SECURE_SUMS, W.RATIONAL): "server.secure: rational devices judge the model anew if they are "
    "restarted, and might then withhold an update that the server counts; leave one of them out",
    (R.SECURE_SUMS, W.LATER_ROUNDS): "server.mode: with {found!r} an update may count in a later "
    "round, but with server.secure a round counts those of its own sum; expected the synchronous "
    "mode",
    (R.SECURE_SUMS, W.SERVER_PRIVACY): "server.privacy: with server.secure the server cannot check "
    "that devices state the norms by which it clips; expected where = 'sum' or 'device'",
    (R.NOISY_SUMS, W.NO_SECURE_SUMS): "server.privacy: where = 'sum' hides updates in their sum, "
    "but without server.secure the server gets every update; expected [server.secure] with a "
    "range, or where = 'server'",
    (R.NOISY_SUMS, W.EXACT_SUMS): "server.secure.range: with server.privacy.where = 'sum' devices "
    "add whole numbers of steps of a grid, but without a range there is none; set range, the "
    "largest absolute entry of an update",
    (R.KEPT_UPDATES, W.SECURE_SUMS): "server.keep_updates: with server.secure the server gets the "
    "sum in place of updates; expected false",
    (R.APP, W.SECURE_SUMS): "server.secure: an app reports more of each update than its sum; take "
    "a task of muster, or leave out server.secure",
    (R.GRANTS, W.SECURE_SUMS): "{place}.shared_link.slots: a device gets a slot for its model and "
    "for its update, but none for the steps of server.secure; leave one of them out",
    (R.BOUNDED_CHANGE, W.MASK): "server.privacy: how much one device can change the model is not "
    "bounded if devices train different parts of it; leave out groups.mask, or server.privacy",
    (
        R.BOUNDED_CHANGE,
        W.COUNTED,
    ): "server.privacy: noise can make {found} impossible, for example a "
    "variance below 0; leave server.privacy out, or take a model without such buffers (group or "
    "layer normalisation)",
    (R.CLIPPING, W.NORM_LIMIT): "server.privacy: every update is clipped, but "
    "server.guard.max_norm = {found} refuses long ones, and how many it refuses depends on the "
    "data; leave out server.guard.max_norm",
    (R.CLIPPING_BY_DEVICES, W.CLIPPED_UPDATES): "training.clip_update: server.privacy with where = "
    "'device' sets clip_update and update_noise; leave both out of training",
    (R.CLIPPING_BY_DEVICES, W.NOISY_UPDATES): "training.clip_update: server.privacy with where = "
    "'device' sets clip_update and update_noise; leave both out of training",
    (R.KEPT_UPDATES, W.SERVER_PRIVACY): "server.keep_updates: the server would write down every "
    "update as it arrived, which is what server.privacy hides; expected false, or "
    "server.privacy.where = 'device'",
    (R.KEPT_UPDATES, W.PARTIAL_SUMS): "server.keep_updates: with groups.partial_sums the server "
    "gets sums in place of updates; expected false",
    (R.OWN_MODEL, W.GRADIENT): "training.gradient: rational devices go on training from a model of "
    "their own, but with gradient = true they train none; leave it out",
    (R.OWN_MODEL, W.DEVICE_PRIVACY): "server.privacy: rational devices go on training from a model "
    "of their own, which would be clipped with the update; leave server.privacy out",
    (R.OWN_MODEL, W.CLIPPED_UPDATES): "training.clip_update: rational devices go on training from "
    "a model of their own, which would be clipped with the update; leave training.clip_update out",
    (R.JUDGED_MODELS, W.MASK): "{place}.mask: rational devices judge whole models, but a mask "
    "gives them parts; leave mask out, or participation.kind = 'compliant'",
    (R.JUDGED_MODELS, W.SLOTS): "{place}.shared_link.slots: a rational device would take a slot "
    "before it declines; leave slots out, or participation.kind = 'compliant'",
    (R.JUDGED_MODELS, W.SHARED_RATE): "{place}.shared_link: a rational device uses the link before "
    "it declines, which the model of shared links, by which rounds in lockstep are judged, does "
    "not count; set clock.kind = 'wall', leave shared_link out, or participation.kind = "
    "'compliant'",
    (R.JUDGED_MODELS, W.GPU): "{place}.device.torch_device: rational devices judge models on the "
    "CPU; expected 'cpu', found {found!r}",
    (R.JUDGED_MODELS, W.NO_ACCURACY): "task: rational devices compare accuracies, which {found!r} "
    "has not; take a classification task, or participation.kind = 'compliant'",
    (R.JUDGED_MODELS, W.NO_VALIDATION): "task.validation_ratio: rational devices judge models on "
    "examples that they hold out, but hold out none; expected more than 0, for example 0.2",
    (R.FITTED_UTILITY, W.UNTOLD_WEIGHTS): "{place}.participation.utility.test: 'fitted' compares "
    "utilities at the weight that a device is told, but the aggregator tells none; expected "
    "'measured', or server.aggregator = 'feduca'",
    (R.REPORTED_UTILITY, W.UNTOLD_WEIGHTS): "{place}.participation.utility.{by}: a device reports "
    "no utility, because the aggregator tells it no weight; leave {by} out, or take "
    "server.aggregator = 'feduca'",
    (R.SLOTS, W.LATER_ROUNDS): "server.mode: a channel slot is granted for the transfers of one "
    "round, and updates outlive theirs; leave out groups.shared_link.slots, or take the "
    "synchronous mode",
    (R.GRANTS, W.RUNNING_CLOCK): "{place}.shared_link.slots: slots need clock.kind = 'rounds' or "
    "'modelled'; found {found!r}",
    (R.DRAWN_CALLS, W.SELECTION): "server.selection: {found!r} selects devices for a round; in the "
    "{by} mode `concurrency` says how many devices work, and the server draws them. Leave the "
    "selection out",
    (R.DEADLINE, W.NO_DEADLINE): "server.deadline_s: required with clock.kind = {by!r}, because "
    "devices may leave during a round",
    (R.MODELLED_WORK, W.NO_DURATION): "{place}.device.examples_per_s: with clock.kind = 'modelled' "
    "a round lasts as long as its modelled work, and that of this group takes no time; expected a "
    "speed, or a link",
    (R.OWN_LINK, W.PACKED): "{place}.devices_per_process: {found} devices of a process share one "
    "connection, but each device needs a link of its own; expected 1 with a link",
    (R.WALL_TIME, W.SCALED_TIME): "clock.scale: {found}, but links are real and run in wall time; "
    "expected 1 with links",
    (R.MEASURED_LINKS, W.NO_LINKS): "verify: no group has a link to measure; set "
    "groups.link.profile",
    (R.GOAL, W.COUNTED_VERSIONS): "server.goal: with server.mode {found!r}, server.mode.k is the "
    "number of updates that make a version; leave out server.goal = {by}",
    (R.GRADIENT, W.COUNTED): "training.gradient: {found} have no gradient; leave it out, or take a "
    "model without such buffers (group or layer normalisation)",
    (R.GRADIENT, W.PROJECTION): "training.gradient: it takes no local step, so projection_radius "
    "has nothing to act on; leave it out",
    (R.GRADIENT, W.PROXIMAL): "training.gradient: it takes no local step, so proximal_mu has "
    "nothing to act on; leave it out",
    (R.GRADIENT, W.GROUP_RATES): "training.gradient: it takes no local step, so the learning_rate "
    "of {place} has nothing to act on; leave it out",
    (R.GRADIENT, W.OPTIMIZER): "training.gradient: it takes no local step, so the optimizer has "
    "nothing to act on; expected optimizer = 'sgd' without settings, found {found}",
    (R.GRADIENT, W.CLIPPED_STEPS): "training.gradient: it takes no local step, so clip_norm has "
    "nothing to act on; leave it out, or set clip_update, which clips the gradient that a device "
    "returns",
    (R.TOGETHER, W.BY_DEVICE): "training.together: training.by_device = {found!r} lets devices of "
    "a process train differently; leave one of them out",
    (R.ONE_RATE, W.BY_DEVICE): "server.aggregator: {by!r} computes with the learning rate of "
    "training, but training.by_device = {found!r} may give devices others; leave that out, or set "
    "smoothness of the aggregator",
    (R.GRADIENT, W.BY_DEVICE): "training.gradient: the server steps with the one learning rate of "
    "training, but training.by_device = {found!r} may give devices others; leave it out",
    (R.TOGETHER, W.TRAINER): "training.together: training.trainer = {found!r} trains one device at "
    "a time; leave one of them out",
    (
        R.KEPT_STATE,
        W.RATIONAL,
    ): "{place}.participation: rational devices train a model of their own "
    "too, but training.trainer = {by!r} keeps one state; leave out its parameter state",
    (
        R.TOGETHER,
        W.OWN_OPTIMIZER,
    ): "training.together: the optimizer {found!r} moves the "
    "parameters of one device; expected an optimizer of muster's own, or together = 1",
    (R.AUGMENTATIONS, W.TRAINER): "training.augmentations: muster's own training augments "
    "minibatches, but training.trainer is {found!r}; leave {by!r} out, and let the function draw "
    "such changes from its `generator`",
    (R.AUGMENTATIONS, W.TOGETHER): "training.together: devices that train at the same time share "
    "no minibatch to augment by {by!r}; leave one of them out",
    (R.PICTURES, W.NO_PICTURES): "training.augmentations: {by!r} changes pictures, and the task "
    "{found!r} has none; leave it out, or write a function of your own",
    (R.NOISE, W.UNCLIPPED_UPDATES): "training.update_noise: {by} needs clip_update: without a "
    "largest norm, no noise hides an update; set clip_update too",
    (R.CONTROL, W.NO_CONTROL): "training.control_variates: the aggregator turns it on, and "
    "{found!r} has no control variates; leave it out",
    (R.APP, W.TRAINING_SETTINGS): "training.{found}: the app trains; leave it out, and set "
    "task.run_config instead",
    (R.APP, W.MEASUREMENTS): "server.{found}: the app evaluates, and muster has no examples to "
    "measure on; leave it out",
    (R.APP, W.LABEL_FAULTS): "{found}.do: label-flip changes examples, and the app reads its own",
    (R.APP, W.MASK): "{place}.mask: an app trains the whole model; leave mask out",
    (R.APP, W.RATIONAL): "{place}.participation: rational devices judge models on examples that "
    "muster knows; leave kind = 'rational' out",
    (R.APP, W.GROUP_TRAINING): "{place}.training: the app decides how it trains; leave it out",
    (R.APP, W.PARTS): "task.parts: an app trains with a model of its own; name arrays that stay "
    "on their device in task.local_arrays, and leave task.parts out",
    (R.GRADIENT, W.LOCAL_PARTS): "training.gradient: devices return a gradient and train nothing, "
    "so {found} would never change; leave gradient out, or task.parts.local",
    (R.OWN_MODEL, W.LOCAL_PARTS): "task.parts.local: rational devices go on training from a whole "
    "model of their own, but {found} stay beside it; leave task.parts.local out, or "
    "participation.kind = 'compliant'",
    (R.LOCAL_PARTS, W.MEASUREMENTS): "server.{found}: the server has no entries of devices, so it "
    "cannot measure models with those that task.parts.local leaves there; leave it out",
    (R.LOCAL_PARTS, W.SERVER_EVALUATION): "server.evaluate_on: the server has only the initial "
    "values of what task.parts.local leaves on devices; set it to 'devices', which evaluate with "
    "their own, or to 'both'",
    (R.TOGETHER, W.FROZEN_PARTS): "training.together: devices that train at the same time train "
    "all parameters, but task.parts.frozen names {found}; leave one of them out",
    (R.DEVICE_METRICS, W.APP): "server.evaluate_on: an app evaluates by itself; expected 'server', "
    "found {by!r}",
    (R.DEVICE_METRICS, W.DEVICE_PRIVACY): "server.privacy: where = 'device' hides updates alone, "
    "but with server.evaluate_on = {by!r} devices also report metrics; expected 'server'",
    (R.DEVICE_METRICS, W.SUM_PRIVACY): "server.privacy: where = 'sum' hides updates alone, but "
    "with server.evaluate_on = {by!r} devices also report metrics; expected 'server'",
    (R.DEVICE_METRICS, W.GPU): "{place}.device.torch_device: devices evaluate models on the CPU; "
    "expected 'cpu' or server.evaluate_on = 'server', found {found!r}",
    (R.DEVICE_METRICS, W.MEASUREMENTS): "server.{found}: with server.evaluate_on = {by!r} groups "
    "and devices are measured on devices; leave it out",
    (R.BATTERY, W.NO_BATTERY): "{key}.do: {by} needs a battery, but the devices of group {found!r} "
    "have none; choose another target, or device.profile = 'phone' or 'tablet'",
    (R.SPEED, W.NO_SPEED): "{key}.do: {by} multiplies modelled seconds of training, but group "
    "{found!r} has no device.examples_per_s, so its training counts as 0 seconds; set it, or "
    "choose another target",
    (R.KEPT_UPDATE, W.PACKED): "{key}.do: {by} sends an update that the device has kept, but "
    "devices that share a process keep none; expected {place}.devices_per_process = 1, found "
    "{found}",
    (R.SENT_UPDATE, W.PARTIAL_SUMS): "{key}.do: {by} damages updates on their way, but those of "
    "group {found!r} stay in their process; expected partial_sums = false",
    (R.SENT_UPDATE, W.SECURE_SUMS): "{key}.do: {by} damages updates on their way, but with "
    "server.secure none travels; leave one of them out",
    (R.KEPT_UPDATE, W.SECURE_SUMS): "{key}.do: {by} sends an update that the device has kept, but "
    "with server.secure none travels; leave one of them out",
    (R.GATEWAY, W.NO_GATEWAY): "{key}.do: {by} acts at a gateway, but group {found!r} has none; "
    "give it a link, for example link.profile = 'unshaped'",
    (R.RATES, W.NO_RATES): "{key}.do: {by} multiplies the rates of links, but those of group "
    "{found!r} have no rates; set link.up and link.down, or link.profile",
    (R.LABELS, W.NUMBERS): "{key}.do: {by} replaces labels of a classification, but the task "
    "predicts numbers; take a task that classifies",
}
"""The sentence with which a requirement and a withholder are refused together. `{by}` and `{found}`
stand for what the scenario says, `{place}` for the key of the group, and `{key}` for that of the
feature."""

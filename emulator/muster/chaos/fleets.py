"""Draws small fleets: clock, mode, rule, task, groups, links, codecs and masks."""

from random import Random
from typing import Any

from muster.common.clock_kinds import is_lockstep

Values = dict[str, Any]
"""Values of a scenario, or of one of its tables."""

_LARGE = 17_000
"""Number of parameters of a model that travels in chunks."""

_TASKS: list[tuple[float, Values, Values]] = [
    (
        0.6,
        {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
    ),
    (
        0.2,
        {"name": "digits", "model": "softmax"},
        {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
    ),
    (
        0.2,
        {"name": "linear", "dimension": _LARGE, "examples_per_client": 4},
        {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4},
    ),
]
"""Shares, tasks, and the local training of each."""

_RULES: dict[str, list[Any]] = {
    "synchronous": [
        "fedavg",
        "agnostic",
        "fedavgm",
        "fedadagrad",
        "fedadam",
        "fedyogi",
        "fedvarp",
        {"kind": "mifa", "start": "zero"},
        "median",
        "trimmed-mean",
        {"kind": "krum", "byzantine": 0},
        {"kind": "multi-krum", "byzantine": 0},
        {"kind": "bulyan", "byzantine": 0},
        "fednova",
        "q-fedavg",
        "importance",
        "scaffold",
    ],
    "opportunistic": ["fedavg", "agnostic", "fedvarp", "fedadam", "median"],
    "buffered": ["fedbuff", "fedavg", "fedadam"],
}
_CODECS: list[Values] = [
    {"kind": "float16"},
    {"kind": "int8"},
    {"kind": "top-k", "ratio": 0.4},
]
_LINKS: list[Values] = [
    {"profile": "unshaped"},
    {"rtt": "4 ms"},
    {"rtt": "2 ms", "up": "4 Mbit/s", "down": "8 Mbit/s"},
]
_MASKS: list[Values] = [
    {"kind": "random", "schedule": "rotating"},
    {"kind": "random", "schedule": "drawn"},
]
_WALL_ROUND_S = 1.0
_STALL_S = 240.0
"""Longer than any pause of a busy machine."""


def draw_fleet(random: Random, seed: int, lockstep: bool) -> Values:
    """Draw the scenario of a fleet without faults. It may contain a contradiction.

    Args:
        seed: of the scenario.
        lockstep: whether its clock is that of lockstep.
    """
    task, training = _drawn(random, [(share, (each, local)) for share, each, local in _TASKS])
    large = task.get("dimension") == _LARGE
    clock = _drawn(random, [(0.7, "rounds"), (0.2, "wall"), (0.1, "scaled")])
    clock = "rounds" if lockstep else clock
    mode = _drawn(random, [(0.6, "synchronous"), (0.2, "opportunistic"), (0.2, "buffered")])
    masked = mode == "synchronous" and not large and random.random() < 0.15
    rule = "fedplt" if masked else random.choice(_RULES[mode])
    linked = clock != "scaled" and random.random() < 0.6
    names = ["near", "far"][: random.choice([1, 1, 2])]
    groups = [
        _group(random, name, clock, masked, linked and not at) for at, name in enumerate(names)
    ]
    server: Values = {
        "rounds": _rounds(random, clock, mode, large),
        "evaluate_every": random.choice([3, 5, 10]),
        "aggregator": rule,
        "mode": _mode(random, mode),
        "keep_updates": random.random() < 0.7,
        "stall_s": _STALL_S,
    }
    if clock != "rounds":
        server |= {"deadline_s": _WALL_ROUND_S, "heartbeat_s": 0.5}
    elif mode == "opportunistic":
        server["deadline_s"] = 2.0
    return {
        "name": f"chaos-{seed}",
        "seed": seed,
        "clock": _clock(_lockstep_kind(random, groups) if clock == "rounds" else clock),
        "task": task,
        "training": training,
        "server": server,
        "groups": groups,
        # Kills of the plan are no faults of the timeline, so each uses up a restart.
        "launch": {"restarts": 1000, "own_core": False},
    }


def _drawn(random: Random, choices: list[tuple[float, Any]]) -> Any:
    """One of the choices, by their shares."""
    shares, values = zip(*choices, strict=True)
    return random.choices(values, shares)[0]


def _rounds(random: Random, clock: str, mode: str, large: bool) -> int:
    if clock != "rounds":
        # With a buffer, versions follow each other without waiting for a deadline.
        return random.randint(40, 80) if mode == "buffered" else random.randint(5, 9)
    return random.randint(8, 14) if large else random.randint(20, 50)


def _mode(random: Random, mode: str) -> Values:
    if mode == "opportunistic":
        return {"kind": mode, "max_staleness": random.randint(1, 4)}
    if mode == "buffered":
        sizes = {"k": random.choice([1, 2]), "concurrency": random.choice([2, 3])}
        return {"kind": mode, **sizes, "calls_at": random.choice(["version", "finish"])}
    return {"kind": mode}


def _lockstep_kind(random: Random, groups: list[Values]) -> str:
    """The kind of a clock in lockstep: any, if the work of every group takes modelled time."""
    timed = all("examples_per_s" in group["device"] or "rtt" in group["link"] for group in groups)
    return random.choice(["rounds", "modelled"]) if timed else "rounds"


def _clock(kind: str) -> Values:
    if is_lockstep(kind):
        return {"kind": kind, "round_s": 2.0}
    if kind == "scaled":
        return {"kind": kind, "scale": 60.0, "round_s": 60.0 * _WALL_ROUND_S}
    return {"kind": kind, "round_s": _WALL_ROUND_S}


def _group(random: Random, name: str, clock: str, masked: bool, linked: bool) -> Values:
    count = random.randint(2, 4)
    link: Values = dict(random.choice(_LINKS)) if linked else {}
    if random.random() < 0.4:
        link["compression"] = random.choice(_CODECS)
    device: Values = {}
    if random.random() < 0.5:
        device["examples_per_s"] = random.choice([8, 40])
    if random.random() < 0.25:
        device["profile"] = "phone"
    group: Values = {"name": name, "count": count, "device": device, "link": link}
    if not linked and random.random() < 0.4:
        group["devices_per_process"] = random.randint(2, count)
        group["partial_sums"] = random.random() < 0.4
    if clock == "rounds" and random.random() < 0.2:
        group["availability"] = {"kind": "bernoulli", "probability": 0.8}
    if masked:
        device["capacity"] = 0.5
        group["mask"] = random.choice(_MASKS)
    return group

"""Batches of devices for the tests of availability models."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from muster.client.availability import DeviceBatch

MakeCast = Callable[..., DeviceBatch]


@pytest.fixture
def make_cast() -> MakeCast:
    """Make a batch of all devices of a group, or of those at the positions `only`."""

    def make(
        size: int,
        only: Sequence[int] | None = None,
        seed: int = 7,
        group: str = "phones",
        step_s: float = 600.0,
        zones_h: Sequence[float] = (0.0,),
        ages: Sequence[float] = (0.0,),
        start_h: float = 0.0,
    ) -> DeviceBatch:
        positions = np.array(range(size) if only is None else only)
        return DeviceBatch(
            seed=seed,
            group=group,
            clients=[f"{group}-{position}" for position in positions],
            positions=positions,
            size=size,
            z={"age": np.resize(ages, size)[positions]},
            step_s=step_s,
            start_h=start_h,
            zone_h=np.resize(zones_h, size)[positions],
        )

    return make

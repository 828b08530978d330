"""Fixtures of the property tests."""

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings


@pytest.fixture
def unshrunk() -> Iterator[None]:
    """The first failing example suffices: a test that expects a failure need not make it small."""
    profile = settings.get_current_profile_name()
    settings.register_profile("unshrunk", settings.default, phases=[Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(profile)

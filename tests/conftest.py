"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# No deadlines per example: a test never depends on the machine's speed. Examples are derived from
# the test itself, so that a failure anywhere is a failure everywhere.
settings.register_profile(
    "muster", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("muster")

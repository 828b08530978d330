"""What a running gateway does to bytes besides rates and round trips.

Each link may only be slower than asked if the machine is busy, so the test looks only for what is
too fast: a gateway without the setting would be.
"""

from pathlib import Path

from muster.emulator.verification import Tolerances, verify
from muster.emulator.verification.result import Quantity

LINKS = """
name = "links"
seed = 3
task = "linear"
[server]
rounds = 3
[[groups]]
name = "skewed"
count = 1
link = {delay_up = "120 ms", delay_down = "20 ms"}
[[groups]]
name = "far"
count = 1
link = {up = "20 Mbit/s", rtt = "200 ms", initial_window = 10}
[[groups]]
name = "lossy"
count = 1
link = {rtt = "20 ms", loss = 0.1, loss_burst = 2}
[[groups]]
name = "moving"
count = 1
link = {up = "5 Mbit/s", rtt = "10 ms", handover_time = "1 s", handover_gap = "300 ms"}
"""

_ROUNDED = 0.999


def test_a_gateway_delays_loses_starts_and_interrupts_as_asked(
    tmp_path: Path, nothing_left: None
) -> None:
    path = tmp_path / "links.toml"
    path.write_text(LINKS)
    found = verify(path, seconds=1.0, tolerances=Tolerances(rate=0.5))
    rows = {(row.group, row.quantity): row for row in found.rows}
    floors: tuple[tuple[str, Quantity, float], ...] = (
        ("skewed", "delay up", 0.12),
        ("skewed", "delay down", 0.02),
        ("lossy", "late echoes", 1e-9),  # about one of five loses a packet
    )
    for group, quantity, least in floors:
        measured = rows[group, quantity].measured
        assert measured is not None
        assert measured >= _ROUNDED * least
    # A first byte that is late makes these shorter: they are only there.
    assert rows["far", "start up"].measured
    assert rows["moving", "gap up"].asked == 0.3

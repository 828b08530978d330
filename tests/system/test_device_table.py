"""A fleet of real processes whose devices come from a table."""

from pathlib import Path

import pytest
import tomli_w

from muster.common.errors import ConfigError
from muster.emulator import run
from muster.emulator.records.account import Account
from muster.emulator.run_audit import audit
from muster.emulator.runs.running import resume
from muster.emulator.scenario.reading import read_scenario

TABLE = """client,down_mbps,up_mbps,rtt_ms,examples_per_s
dev-0001,40,10,30,50
dev-0000,8,4,80,20
dev-0002,2,1,300,5
"""


@pytest.mark.slow
def test_a_run_has_the_devices_of_its_table_and_goes_on_only_with_them(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    table.write_text(TABLE)
    values = {
        "name": "table",
        "task": {"name": "digits", "model": "softmax"},
        "training": {"local_steps": 2, "batch_size": 10},
        "server": {"rounds": 2},
        "groups": [{"name": "dev", "count": 3, "table": "devices.csv"}],
    }
    (tmp_path / "table.toml").write_text(tomli_w.dumps(values))
    folder = run(read_scenario(tmp_path / "table.toml"), out=tmp_path / "run").folder
    with Account(folder) as account:
        took = account.answers.groupby("client")["modelled_s"].unique()
        [size] = account.transfers["bytes"].unique()
    for name, down, up, rtt_s, speed in (
        ("dev-0000", 8e6, 4e6, 0.08, 20),
        ("dev-0001", 40e6, 10e6, 0.03, 50),
        ("dev-0002", 2e6, 1e6, 0.3, 5),
    ):
        # The model and the update are of the same length.
        seconds = 20 / speed + 8 * size / down + 8 * size / up + 2 * rtt_s
        assert list(took[name]) == pytest.approx([seconds])
    assert (result := audit(folder)).agrees, result.first
    table.write_text(TABLE.replace("300", "301"))
    with pytest.raises(
        ConfigError, match=r"devices.csv, a file that the scenario names, has chang"
    ):
        resume(folder, rounds=3, report=False)

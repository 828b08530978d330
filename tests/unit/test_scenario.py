import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

from muster.client.availability.trace import Replay
from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.emulator.launch import doctor
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import AGGREGATORS
from muster.tasks.files import DATA_VARIABLE

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))

PLAIN = """
name = "plain"
[task]
name = "linear"
[server]
rounds = 3
[[groups]]
name = "a"
count = 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A scenario without a mistake."""
    path = tmp_path / "plain.toml"
    path.write_text(PLAIN)
    return path


def mistakes(path: Path, text: str, *settings: str) -> list[str]:
    """What is said of a scenario with this text, a line for each mistake."""
    path.write_text(text)
    return complaint(path, *settings).splitlines()


def complaint(path: Path, *settings: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_scenario(path, settings)
    return str(error.value)


# --- mistakes ------------------------------------------------------------------------------------

WRONG = """
name = "wrong"
sed = 3
[task]
name = "linear"
dimension = "five"
[training]
learning_rate = -1.0
batch_size = 0
[server]
transfers = 0
selection = { kind = "uniform" }
aggregator = "fedavgg"
[[groups]]
name = "a"
count = "3"
[[groups]]
name = "b"
cuont = 3
"""


MISTAKES = """
sed: unknown key; did you mean 'seed'?
task.dimension: expected a valid integer, found 'five'
training.learning_rate: expected a number from 1e-12 to 1e+06 or a schedule's table, found -1.0
training.batch_size: expected a whole number from 1 to 100,000,000 or "full", found 0
server.rounds: required, but missing
server.transfers: expected at least 1, found 0
server.selection.k: required, but missing
server.aggregator: there is no aggregator called 'fedavgg' (did you mean 'fedavg'?); there are: \
agnostic, fedavg, or your own as 'module:Class'
groups[0].count: expected a valid integer, found '3'
groups[1].count: required, but missing
groups[1].cuont: unknown key; did you mean 'count'?
"""


def test_every_mistake_is_named_at_once_with_what_was_expected_and_found(path: Path) -> None:
    head, *found = mistakes(path, WRONG)
    expected = MISTAKES.replace("agnostic, fedavg", ", ".join(sorted(AGGREGATORS.names())))
    assert sorted(line.strip() for line in found) == sorted(expected.split("\n")[1:-1])
    assert head == f"{path}: {len(found)} mistakes"


CONTRADICTORY = """
name = "contradictory"
task = "linear"
clock = { kind = "wall" }
[server]
rounds = 2
goal = 9
minimum = 12
selection = { kind = "uniform", k = 7 }
[[groups]]
name = "a"
count = 2
[[groups]]
name = "a"
count = 2
"""


def test_settings_that_contradict_each_other_are_all_named(path: Path) -> None:
    said = "\n".join(mistakes(path, CONTRADICTORY))
    for contradiction in (
        "groups: two groups are called a",
        "server.selection.k: 7 devices per round, but the population has only 4",
        "server.goal: 9 updates, but the population has only 4 devices",
        "server.minimum: 12 is more than the goal of 9",
        "server.deadline_s: required with clock.kind = 'wall'",
    ):
        assert contradiction in said


@pytest.mark.parametrize(
    "setting",
    [
        "server.selection={kind = 'uniform', k = 2}",
        "server={rounds = 3, goal = 2, minimum = 2}",
        "clock.kind=rounds",
    ],
)
def test_what_just_fits_is_no_contradiction(path: Path, setting: str) -> None:
    read_scenario(path, [setting])


def test_a_scenario_without_groups_is_refused(path: Path) -> None:
    assert "groups: " in complaint(path, "groups=[]")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    assert f"there is no scenario {tmp_path / 'none.toml'}" in complaint(tmp_path / "none.toml")


def test_a_file_that_is_not_toml_is_told_with_the_line(path: Path) -> None:
    (said,) = mistakes(path, "name = \n")
    assert said.startswith(f"{path} is not TOML: ")
    assert "line 1" in said


def test_a_file_that_is_not_text_or_not_a_file_is_told(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    assert f"{path} cannot be read" in complaint(path)
    assert f"{tmp_path} cannot be read" in complaint(tmp_path)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "..", ".hidden", "-rf", "a b", "a\n", "a\0"])
@pytest.mark.parametrize("key", ["name", "groups[0].name"])
def test_a_name_that_could_leave_its_folder_is_refused(path: Path, key: str, name: str) -> None:
    values = tomllib.loads(PLAIN)
    (values if key == "name" else values["groups"][0])["name"] = name
    path.write_text(tomli_w.dumps(values))
    assert f"{key}: expected " in complaint(path)


# --- --set ---------------------------------------------------------------------------------------


def read(path: Path, *settings: str) -> Scenario:
    return read_scenario(path, settings)


def test_a_setting_is_named_by_its_dotted_path(path: Path) -> None:
    assert read(path, "server.rounds=7").server.rounds == 7
    assert read(path, "seed=8").seed == 8
    assert read(path, " server.rounds = 9 ").server.rounds == 9


@pytest.mark.parametrize("key", ["groups[0].count", "groups.0.count"])
def test_an_element_of_a_list_is_named_by_its_number(path: Path, key: str) -> None:
    assert read(path, f"{key}=20").devices == 20


def test_a_text_needs_no_quotes_and_may_have_them(path: Path) -> None:
    assert read(path, "name=other").name == "other"
    assert read(path, 'name="other"').name == "other"
    assert read(path, "server.aggregator=agnostic").server.aggregator.kind == "agnostic"


def test_a_setting_may_be_any_toml_value(path: Path) -> None:
    found = read(path, "server.target={loss = 0.5}", "training.gradient=true", "task.noise=1e-3")
    assert (found.server.target.loss, found.training.gradient) == (0.5, True)
    assert found.task.model_dump()["noise"] == 0.001


def test_a_table_that_the_file_does_not_have_is_made(path: Path) -> None:
    assert read(path, "launch.restarts=2").launch.restarts == 2


def test_a_name_takes_no_keys_but_a_table_does(path: Path) -> None:
    table = 'give a table, availability = {kind = "always", mean_up_s = …}'
    with pytest.raises(ConfigError, match=re.escape(table)):
        read(path, "groups[0].availability=always", "groups[0].availability.mean_up_s=5")


def test_the_last_of_several_settings_of_a_key_holds(path: Path) -> None:
    assert read(path, "seed=1", "seed=2").seed == 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("server.rounds", "expected key=value"),
        ("=5", "expected key=value"),
        (" =5", "expected key=value"),
        ("name.x=5", "name is 'plain', which has no keys"),
        ("groups[1].count=5", "expected a number below 1, found '1'"),
        ("groups[-1].count=5", "expected a number below 1, found '-1'"),
        ("groups.a.count=5", "expected a number below 1, found 'a'"),
        ("groups[0]=5", "expected the key of a table after groups"),
        (".=5", "expected key=value"),
        ("[]=5", "expected key=value"),
        ("groups[²].count=5", "expected a number below 1, found '²'"),
    ],
)
def test_a_setting_that_cannot_be_made_is_refused_by_its_text(
    path: Path, setting: str, said: str
) -> None:
    found = complaint(path, setting)
    assert found.startswith(f"--set {setting}: ")
    assert said in found


def test_an_unknown_key_in_a_setting_is_refused_like_one_in_the_file(path: Path) -> None:
    assert "server.ronds: unknown key; did you mean 'rounds'?" in complaint(path, "server.ronds=5")


def test_a_suggestion_depends_only_on_what_may_stand_there(path: Path) -> None:
    class Elsewhere(Section):
        round: int
        cuont: int

    assert "server.round: unknown key; did you mean 'rounds'?" in complaint(path, "server.round=5")
    assert "did you mean 'count'?" in complaint(path, "groups[0].cuont=5")
    assert "did you mean" not in complaint(path, "groups[0].ronds=5")


# --- where data is -------------------------------------------------------------------------------


def directory(path: Path, data: str | None = None, *settings: str) -> str | None:
    return read_scenario(path, settings, data).task.data.directory


def test_the_data_directory_is_the_flags_then_the_environments_then_the_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = "task.data.directory=/of/the/file"
    assert directory(path) is None
    assert directory(path, None, stated) == "/of/the/file"
    monkeypatch.setenv(DATA_VARIABLE, "/of/the/environment")
    assert directory(path, None, stated) == "/of/the/environment"
    assert directory(path, "/of/the/flag", stated) == "/of/the/flag"


def test_a_data_directory_in_the_file_is_relative_to_the_file(path: Path) -> None:
    assert directory(path, None, "task.data.directory=data") == str(path.parent / "data")


def test_a_data_directory_given_outside_the_file_is_relative_to_here(
    path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    assert directory(path, "data") == str(here / "data")
    monkeypatch.setenv(DATA_VARIABLE, "other")
    assert directory(path) == str(here / "other")


def test_a_tilde_is_the_home_folder_wherever_it_is_given(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = str(tmp_path / "home/data")
    assert directory(path, "~/data") == expected
    assert directory(path, None, "task.data.directory=~/data") == expected


def test_the_data_directory_reaches_a_task_that_is_only_named(path: Path) -> None:
    path.write_text(PLAIN.replace('[task]\nname = "linear"', 'task = "linear"'))
    assert read_scenario(path).task.kind == "linear"
    assert directory(path, "/of/the/flag") == "/of/the/flag"


# --- examples and the resolved scenario ----------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reads_and_its_resolved_form_reads_as_itself(
    example: Path, tmp_path: Path
) -> None:
    first = read_scenario(example)
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(first.to_toml())
    assert read_scenario(resolved) == first
    assert read_scenario(resolved).to_toml() == first.to_toml()


def test_the_resolved_form_keeps_what_was_set(path: Path, tmp_path: Path) -> None:
    first = read(
        path,
        "clock={kind = 'wall'}",
        "server={rounds = 2, deadline_s = 5.0, target = {loss = 0.5}}",
        "server.selection={kind = 'uniform', k = 1, over_selection = 1.5}",
        "training.learning_rate={kind = 'inverse', initial = 0.1, shift = 5.0}",
        "groups[0].device.examples_per_s=10.0",
    )
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(first.to_toml())
    assert read_scenario(resolved) == first


# --- lives ---------------------------------------------------------------------------------------


def lives(text: str) -> str:
    return f"{PLAIN}\n{text}"


def test_a_profile_presets_a_device_and_what_stands_beside_it_prevails(path: Path) -> None:
    path.write_text(
        lives("[groups.device]\nprofile = 'phone'\nbattery = { capacity_mah = 3000.0 }")
    )
    device = read_scenario(path).groups[0].device
    assert device.battery is not None
    assert (device.battery.capacity_mah, device.battery.training_ma) == (3000.0, 400.0)
    assert device.connectivity.kind == "mobile"
    assert device.lives


def test_a_resolved_scenario_is_read_as_the_same(path: Path) -> None:
    path.write_text(
        lives(
            "[groups.device]\nprofile = 'tablet'\n"
            "time_zone = { kind = 'uniform', low = 0, high = 3 }\n"
            "[groups.availability]\nkind = 'logistic'\nintercept = 0.5\nz = { age = 1.0 }\n"
            "[groups.covariates.z]\nage = { kind = 'normal', mean = 0.0, sd = 1.0 }\n"
            "[groups.participation]\nwilling = { intercept = 0.0 }\n"
            "[groups.enrollment]\nkind = 'rule'\nwhere = { age = { min = -1.0 } }"
        )
    )
    first = read_scenario(path)
    path.write_text(first.to_toml())
    assert read_scenario(path) == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[groups.availability]\nkind = 'logistic'\nintercept = 0.0\nz = { age = 1.0 }",
            "groups[0].availability.z.age: there is no such covariate; there are: none",
        ),
        (
            "[groups.participation]\nwilling = { intercept = 0.0, x = { charge = 1.0 } }",
            "groups[0].participation.willing.x.charge: there is no such covariate",
        ),
        (
            "[groups.availability]\nkind = 'k-of-n'\nk = 5",
            "groups[0].availability: k = 5 of a group of 2; expected at most 2",
        ),
        ("[groups.availability]\nkind = 'trace'\nfile = 'none.csv'", "none.csv"),
        (
            "[clock]\nkind = 'modelled'",
            "groups[0].device.examples_per_s: with clock.kind = 'modelled' a round lasts as long",
        ),
        (
            "[groups.device]\nexamples_per_s = -10",
            "groups[0].device.examples_per_s: expected a speed > 0, found -10",
        ),
        ("[clock]\nscale = 2.0", "clock: scale = 2 needs kind = 'scaled'; found 'rounds'"),
        ("[clock]\nkind = 'scaled'", "server.deadline_s: required with clock.kind = 'scaled'"),
        (
            "[groups.device]\nprofile = 'phone'\nbatery = {}",
            "groups[0].device.batery: unknown key; did you mean 'battery'?",
        ),
    ],
)
def test_a_life_that_cannot_be_is_refused(path: Path, text: str, said: str) -> None:
    assert said in "\n".join(mistakes(path, lives(text)))


def test_contradictions_are_counted_and_said_one_by_one(path: Path) -> None:
    text = lives(
        "[groups.availability]\nkind = 'k-of-n'\nk = 5\n[server.selection]\nkind = 'uniform'\nk = 9"
    )
    first, *others = mistakes(path, text)
    assert first.endswith("2 mistakes")
    assert len(others) == 2


def test_files_of_a_scenario_lie_beside_it(path: Path) -> None:
    (path.parent / "t.csv").write_text("client,start,period_s,toggles\na-0000,1,60,5 9\n")
    path.write_text(lives("[groups.availability]\nkind = 'trace'\nfile = 't.csv'"))
    availability = read_scenario(path).groups[0].availability
    assert isinstance(availability, Replay)
    assert availability.file == str(path.parent / "t.csv")


def test_enrollment_that_leaves_nobody_is_refused_before_the_start(path: Path) -> None:
    path.write_text(lives("[groups.enrollment]\nkind = 'bernoulli'\nprobability = 0.0"))
    with pytest.raises(ConfigError, match="no device is enrolled"):
        doctor.require(read_scenario(path))

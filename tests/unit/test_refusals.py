"""The command line and the operating system: what cannot be written or read is refused in plain
words, with the promised exit status, and nothing is left behind."""

import errno
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.common.errors import ConfigError, RunFailed
from muster.common.files import write_atomic
from muster.emulator.run_folder.folder import new_run_folder

PLAIN = """
name = "plain"
[task]
name = "linear"
[server]
rounds = 3
[[groups]]
name = "a"
count = 2
link = { profile = "wifi" }
"""

Muster = Callable[..., Result]

NOWHERE = ["/dev/null/x", "/dev/null/x/y", "/proc/x"]
"""Paths at which nobody can make anything, whoever runs the test: below a file, and in /proc."""


@pytest.fixture
def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Muster:
    """Calls a command in an empty folder that holds plain.toml."""
    monkeypatch.chdir(tmp_path)
    Path("plain.toml").write_text(PLAIN)
    return lambda *arguments: CliRunner().invoke(main, arguments)


def assert_refused(result: Result, *said: str) -> None:
    """Exit status 2, an error in words on standard error, and nothing made here."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert "error: " in result.stderr
    for words in said:
        assert words in result.stderr
    assert not Path("runs").exists()
    assert not Path("plans").exists()


# --- where nothing can be written ----------------------------------------------------------------


@pytest.mark.parametrize("out", NOWHERE)
@pytest.mark.parametrize(
    "command",
    [
        ("run", "plain.toml"),
        ("plan", "plain.toml"),
        ("compare", "plain.toml", "--vary", "server.rounds=1,2"),
        ("study", "correlated", "--quick", "--seeds", "1"),
    ],
    ids=lambda command: command[0],
)
def test_a_folder_that_cannot_be_made_is_refused(
    muster: Muster, command: tuple[str, ...], out: str
) -> None:
    assert_refused(muster(*command, "--out", out), f"{out} cannot be written", "--out")


@pytest.mark.parametrize("out", ["/dev/null/x.json", "/proc/x.json", "none/x.json"])
def test_verify_refuses_a_file_that_cannot_be_written_before_it_measures(
    muster: Muster, out: str
) -> None:
    assert_refused(muster("verify", "plain.toml", "--json", out), f"{out} cannot be written")


def test_a_plan_is_refused_before_it_is_computed_when_its_folder_takes_no_file(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.emulator.planning.plan", pytest.fail)
    assert_refused(muster("plan", "plain.toml", "--out", "/proc"), "/proc cannot be written")


def test_a_plan_that_is_refused_leaves_no_folder(muster: Muster) -> None:
    nobody = PLAIN + 'enrollment = { kind = "bernoulli", probability = 0 }\n'
    Path("nobody.toml").write_text(nobody)
    assert_refused(muster("plan", "nobody.toml", "--out", "a/b"), "no device is enrolled")
    assert not Path("a").exists()


def test_a_file_of_traces_that_cannot_be_written_is_refused(muster: Muster) -> None:
    import pickle

    found = {1: {"active": [0], "inactive": [50], "finish_time": 180}}
    Path("behave").write_bytes(pickle.dumps(found))
    refused = muster("trace", "import", "behave", "/dev/null/x.csv")
    assert_refused(refused, "/dev/null/x.csv cannot be written")


def test_a_run_folder_that_cannot_be_finished_is_removed_again(tmp_path: Path) -> None:
    out = tmp_path / "a/b/run"

    class Full(str):
        def encode(self, *_: object) -> bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out / "scenario.toml"))

    with pytest.raises(ConfigError, match=r"run cannot be written: No space left on device"):
        with new_run_folder("plain", out, Full("text")):
            pytest.fail("it has no scenario")
    assert list(tmp_path.iterdir()) == []


def test_a_new_run_folder_holds_its_scenario(tmp_path: Path) -> None:
    with new_run_folder("plain", tmp_path / "run", "name = 'plain'\n") as folder:
        assert (folder / "scenario.toml").read_text() == "name = 'plain'\n"
    assert folder.exists()


def test_a_run_that_is_refused_late_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="late"), new_run_folder("late", None, ""):
        raise ConfigError("late")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_refused_late_is_not_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with new_run_folder("plain", None, "") as old:
        pass
    with pytest.raises(ConfigError, match="late"), new_run_folder("late", None, ""):
        raise ConfigError("late")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["latest", old.name]
    assert Path("runs/latest").resolve() == old.resolve()


def test_a_run_that_fails_keeps_its_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFailed), new_run_folder("plain", tmp_path / "run", "text"):
        raise RunFailed("later")
    assert (tmp_path / "run/scenario.toml").exists()


@pytest.mark.parametrize("name", ["a" * 101, "a" * 300])
def test_names_of_files_are_short_enough_for_a_file_system(muster: Muster, name: str) -> None:
    assert_refused(muster("run", "plain.toml", "--set", f"name={name}"), "name: expected", "100")
    refused = muster("run", "plain.toml", "--set", f"groups[0].name={name}")
    assert_refused(refused, "groups[0].name: expected", "100")


def test_what_write_atomic_could_not_finish_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_atomic(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_write_atomic_does_not_follow_a_link_that_somebody_left(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("unchanged")
    (tmp_path / "file.tmp").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        write_atomic(tmp_path / "file", b"content")
    assert other.read_text() == "unchanged"


# --- what cannot be read -------------------------------------------------------------------------

DEEP = {
    "arrays": f"{PLAIN}\n[more]\na = {'[' * 3000}{']' * 3000}\n",
    "inline tables": f"{PLAIN}\n[more]\na = {'{a = ' * 3000}1{'}' * 3000}\n",
    "dotted keys": f"{'.'.join(['seed'] * 3000)} = 1\n{PLAIN}",
    "a dotted header": f"{PLAIN}\n[{'.'.join(['seed'] * 3000)}]\n",
    "some arrays": f"seed = {'[' * 60}{']' * 60}\n{PLAIN}",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_a_scenario_that_is_nested_too_deeply_is_refused(muster: Muster, text: str) -> None:
    Path("deep.toml").write_text(text)
    for command in ("run", "plan", "doctor"):
        refused = muster(command, "deep.toml")
        assert_refused(refused, "deep.toml", "expected at most 50 levels")
        assert len(refused.stderr) < 500


@pytest.mark.parametrize(
    "setting",
    [f"seed={'[' * 3000}", f"{'.'.join(['seed'] * 3000)}=1", f"seed={'[' * 60}{']' * 60}"],
)
def test_a_setting_that_is_nested_too_deeply_is_refused(muster: Muster, setting: str) -> None:
    refused = muster("run", "plain.toml", "--set", setting)
    assert_refused(refused)
    assert len(refused.stderr) < 500


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000, f"0x{'f' * 5000}", f"-{'9' * 20}"])
def test_a_whole_number_of_more_than_64_bits_is_refused(muster: Muster, digits: str) -> None:
    Path("large.toml").write_text(f"seed = {digits}\n{PLAIN}")
    refused = muster("run", "large.toml")
    assert_refused(refused, "large.toml", "64 bits")
    assert len(refused.stderr) < 500


def test_a_long_value_is_shown_in_short(muster: Muster) -> None:
    refused = muster("run", "plain.toml", "--set", f"seed='{'x' * 10_000}'")
    assert_refused(refused, "seed: expected a valid integer, found 'xxx", "…")
    assert len(refused.stderr) < 500


@pytest.mark.parametrize(
    "setting",
    [
        'task.data.directory="a\\u0000b"',
        'groups[0].availability={kind="trace",file="a\\u0000b"}',
        'groups[0].link.trace="a\\u0000b"',
        'task.data.directory="~nobody-of-this-name/x"',
    ],
)
def test_a_path_that_is_none_is_refused(muster: Muster, setting: str) -> None:
    assert_refused(muster("run", "plain.toml", "--set", setting), "cannot be a path")


# --- where output goes ---------------------------------------------------------------------------

PROGRAM = [sys.executable, "-c", "from muster.cli.entry import main; main()"]


def to_full(
    *arguments: str, stderr: bool = False, buffered: bool = True
) -> subprocess.CompletedProcess[str]:
    """A command whose standard output (and error) is a full device."""
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [*PROGRAM, *arguments],
            stdout=full,
            stderr=full if stderr else subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            text=True,
            check=False,
        )


@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("doctor",)])
def test_a_full_standard_output_is_told_in_a_line(
    arguments: tuple[str, ...], buffered: bool
) -> None:
    done = to_full(*arguments, buffered=buffered)
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.slow
def test_a_full_standard_error_leaves_the_exit_status() -> None:
    assert to_full("run", stderr=True).returncode == 2


# --- Ctrl-C --------------------------------------------------------------------------------------


def test_an_interrupt_while_the_command_line_is_imported_ends_it_without_a_traceback(
    tmp_path: Path,
) -> None:
    # The import of click stands for all of it: it takes as long as the test wants.
    (tmp_path / "click.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        PROGRAM,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == -signal.SIGINT


def test_an_ignored_interrupt_stays_ignored_while_the_command_line_is_imported(
    tmp_path: Path,
) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), 2)\nos._exit(7)\n")
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *PROGRAM],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 7


def test_the_installed_command_is_this_program() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"muster": "muster.cli.entry:main"}

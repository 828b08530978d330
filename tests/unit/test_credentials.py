"""Credentials in files, the authority that signs them, and the command that makes one."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from muster.cli.commands import main
from muster.common.credentials import (
    Callers,
    Credentials,
    CredentialsFile,
    GivenCredentials,
    credentials_path,
    read_credentials,
    write_credentials,
)
from muster.common.errors import ConfigError, Unauthenticated
from muster.common.testing import ManualClock, made_credentials
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, Issuer

DAY_S = 86_400.0
NOW_S = 1_700_000_000.0


def test_a_caller_is_known_by_the_digest_of_its_token() -> None:
    credentials = made_credentials("device/a", byte=7)
    assert credentials.shown == bytes([7] * 16) + b"device/a"
    caller = credentials.as_caller(["a"])
    assert caller.token_sha256 == hashlib.sha256(bytes([7] * 16)).hexdigest()
    assert credentials.token not in caller.to_json()


def test_what_is_printed_of_credentials_has_no_secret() -> None:
    key = Authority.create("x", NOW_S, DAY_S).certify("run", "device/a", NOW_S, DAY_S)
    credentials = made_credentials("device/a", byte=7).model_copy(update={"tls": key})
    for text in (repr(credentials), str(credentials)):
        assert credentials.token not in text
        assert key.key not in text.replace("\\n", "\n")


def test_a_caller_that_is_taken_off_the_list_is_unknown_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "server/credentials.json"
    a, b = made_credentials("device/a", byte=1), made_credentials("device/b", byte=2)
    write_credentials(path, made_credentials("server", [a, b]))
    callers = Callers(CredentialsFile(path))
    assert callers.recognise(a.shown).name == "device/a"
    write_credentials(path, made_credentials("server", [b]))
    with pytest.raises(Unauthenticated, match="'device/a' shows is not one of this run"):
        callers.recognise(a.shown)
    assert callers.recognise(b.shown).name == "device/b"
    assert callers.named("device/a") is None
    assert callers.named("device/b") == b.as_caller()


def test_the_token_of_one_caller_does_not_fit_another() -> None:
    a, b = made_credentials("device/a", byte=1), made_credentials("device/b", byte=2)
    callers = Callers(GivenCredentials(made_credentials("server", [a, b])))
    with pytest.raises(Unauthenticated):
        callers.recognise(a.shown[:16] + b"device/b")


def test_only_the_owner_can_read_a_file_of_credentials(tmp_path: Path) -> None:
    path, written = credentials_path(tmp_path, "device/a"), made_credentials("device/a")
    for _ in range(2):  # also over an older file
        write_credentials(path, written)
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert path == tmp_path / "device/a/credentials.json"
    assert read_credentials(path) == written


@pytest.mark.parametrize("mode", [0o440, 0o404, 0o600 | 0o020, 0o644])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "credentials.json"
    write_credentials(path, made_credentials("server"))
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"only its owner may read, found mode {mode:04o}"):
        read_credentials(path)


def test_a_file_that_is_missing_or_damaged_is_refused_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    with pytest.raises(ConfigError, match="No such file"):
        read_credentials(path)
    secret = made_credentials("server", byte=0xAB)
    path.touch(0o400)
    path.chmod(0o600)
    path.write_text(secret.to_json().replace('"name"', '"nam"'))
    with pytest.raises(ConfigError, match="expected credentials") as refused:
        CredentialsFile(path)
    assert secret.token not in str(refused.value)


def test_every_start_draws_other_credentials_and_removes_those_before(tmp_path: Path) -> None:
    packs = {"a": {"a-0": ["a-0"], "a-1..a-2": ["a-1", "a-2"]}, "b": {"b-0": ["b-0"]}}
    issuer, found = Issuer(tmp_path / "secrets", "run", None), []
    for groups in (packs, {"a": packs["a"]}):
        issuer.issue(groups)
        files = sorted((tmp_path / "secrets").rglob("*.json"))
        found.append({read_credentials(path).name: read_credentials(path) for path in files})
    first, second = found
    assert first.keys() - second.keys() == {"device/b-0", "gateway/b"}
    assert not {c.token for c in first.values()} & {c.token for c in second.values()}
    clients = {caller.name: caller.clients for caller in second["server"].callers}
    assert clients == {"operator": [], "device/a-0": ["a-0"], "device/a-1..a-2": ["a-1", "a-2"]}
    assert [caller.name for caller in first["gateway/b"].callers] == ["supervisor", "device/b-0"]
    assert second["device/a-0"].callers == []


def certificate(credentials: Credentials) -> x509.Certificate:
    assert credentials.tls is not None
    return x509.load_pem_x509_certificate(credentials.tls.certificate.encode())


SERVER_AUTH, CLIENT_AUTH = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def test_a_certificate_has_the_name_of_its_program_and_serves_one_purpose(tmp_path: Path) -> None:
    authority = Authority.create("the run's", NOW_S, 30 * DAY_S)
    certifier = Certifier(authority, ManualClock(NOW_S), lifetime_s=2 * DAY_S)
    Issuer(tmp_path, "run", certifier).issue({"g": {"g-0": ["g-0"]}})
    purposes = {
        "server": {SERVER_AUTH, CLIENT_AUTH},
        "evaluation": {SERVER_AUTH},
        "gateway/g": {SERVER_AUTH},
        "operator": {CLIENT_AUTH},
        "supervisor": {CLIENT_AUTH},
        "device/g-0": {CLIENT_AUTH},
    }
    for name, expected in purposes.items():
        found = certificate(read_credentials(credentials_path(tmp_path, name)))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        assert uris == [f"muster://run/{name}"]
        hosts = names.get_values_for_type(x509.DNSName)
        assert hosts == (["server.run.muster"] if name == "server" else [])
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(usage) == expected
        assert found.not_valid_after_utc.timestamp() == NOW_S + 2 * DAY_S
        assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_certificate_is_never_valid_for_longer_than_its_authority() -> None:
    authority = Authority.create("x", NOW_S, DAY_S)
    made = authority.certify("run", "device/a", NOW_S, 9 * DAY_S)
    found = x509.load_pem_x509_certificate(made.certificate.encode())
    assert found.not_valid_after_utc == authority.expires_at


# --- an authority of one's own -------------------------------------------------------------------


def certs(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["certs", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_makes_an_authority_that_can_be_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    status, told, _ = certs(str(folder), "--days", "2")
    assert status == 0
    assert f"launch.authority={folder}" in told
    assert stat.S_IMODE((folder / "authority.key").stat().st_mode) == 0o400
    pem = (folder / "authority.pem").read_bytes()
    expires_s = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    assert Authority.load(folder, expires_s - DAY_S).expires_at.timestamp() == expires_s


def test_the_command_overwrites_nothing(tmp_path: Path) -> None:
    assert certs(str(tmp_path))[0] == 0
    before = (tmp_path / "authority.key").read_bytes()
    status, _, said = certs(str(tmp_path))
    assert status == 2
    assert "exists: expected a folder without an authority" in said
    assert (tmp_path / "authority.key").read_bytes() == before


def other_key(folder: Path) -> None:
    certs(str(folder / "other"))
    (folder / "authority.key").unlink()
    (folder / "other/authority.key").rename(folder / "authority.key")


def a_leaf(folder: Path) -> None:
    made = Authority.load(folder, NOW_S).certify("run", "device/a", NOW_S, DAY_S)
    (folder / "authority.pem").write_text(made.certificate)
    (folder / "authority.key").chmod(0o600)
    (folder / "authority.key").write_text(made.key)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no certificate": (
        lambda f: (f / "authority.pem").unlink(),
        "authority.pem: expected the cert",
    ),
    "no key": (lambda f: (f / "authority.key").unlink(), "authority.key: expected a file that can"),
    "a key for all": (lambda f: (f / "authority.key").chmod(0o444), "found mode 0444"),
    "garbage": (lambda f: (f / "authority.pem").write_bytes(b"\xff"), "expected a certificate in"),
    "another key": (other_key, "expected authority.key to be the key of authority.pem"),
    "a leaf": (a_leaf, "expected the certificate of an authority that it has signed itself"),
    "expired": (lambda f: None, "expected a certificate that is valid now, found one that is"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_authority_that_cannot_sign_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    damage, says = WRONG[case]
    Authority.create("mine", NOW_S, DAY_S).write(tmp_path)
    damage(tmp_path)
    now_s = NOW_S + 2 * DAY_S if case == "expired" else NOW_S
    with pytest.raises(ConfigError) as refused:
        Authority.load(tmp_path, now_s)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


SCENARIO = """
name = "x"
[task]
name = "linear"
[server]
rounds = 1
[[groups]]
name = "a"
count = 1
"""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["launch.tls=true", "launch.authority=nowhere"], "nowhere/authority.pem: expected"),
        (["launch.authority=nowhere"], "without TLS, a run has no certificates"),
    ],
)
def test_a_run_with_an_unfit_authority_is_refused_and_starts_nothing(
    tmp_path: Path, settings: list[str], says: str
) -> None:
    (tmp_path / "x.toml").write_text(SCENARIO)
    flags = [part for setting in settings for part in ("--set", setting)]
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["run", str(tmp_path / "x.toml"), "--out", str(out), *flags])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not out.exists()


async def test_certificates_are_renewed_after_half_of_their_lifetime(tmp_path: Path) -> None:
    clock = ManualClock(NOW_S)
    certifier = Certifier(Authority.create("x", NOW_S, 30 * DAY_S), clock, lifetime_s=DAY_S)
    issuer = Issuer(tmp_path, "run", certifier)
    issuer.issue({"g": {"g-0": ["g-0"]}})
    path = credentials_path(tmp_path, "device/g-0")
    source = CredentialsFile(path)
    before = source.current()
    renewing = asyncio.create_task(issuer.keep_renewing())
    await asyncio.sleep(0)
    clock.advance(DAY_S / 2 - 1)
    await asyncio.sleep(0)
    assert source.current() is before
    clock.advance(1)
    for _ in range(3):
        await asyncio.sleep(0)
    renewing.cancel()
    after = source.current()
    assert (after.token, after.callers) == (before.token, before.callers)
    assert certificate(before).serial_number != certificate(after).serial_number
    assert certificate(after).not_valid_after_utc.timestamp() == NOW_S + 1.5 * DAY_S
    assert stat.S_IMODE(path.stat().st_mode) == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_root_writes_again_still_belongs_to_the_user_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    write_credentials(path, made_credentials("server"))
    os.chown(path, 10001, 10002)
    write_credentials(path, made_credentials("server", byte=1))
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (10001, 10002, 0o400)

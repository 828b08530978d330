"""A certificate authority: of one run, or one of the user's own that several runs share.

The key of a run's own authority is never written anywhere: it is in the memory of the command that
starts the run. That of the user's own is a file, from `muster certs`.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.common.credentials import EVALUATION, SERVER, TlsIdentity, gateway_identity, read_secret
from muster.common.errors import ConfigError
from muster.common.files import os_reason, refusal_of, write_atomic
from muster.wire.connections.encryption import identity_uri, server_host

CERTIFICATE_FILE: Final = "authority.pem"
KEY_FILE: Final = "authority.key"

_SKEW = timedelta(hours=1)
"""How far behind the clock of another machine may be."""

_COMMON_NAME = 64
"""Most characters of a common name (RFC 5280, appendix A.1)."""

_GATEWAYS = gateway_identity("")


class Authority:
    """Signs the certificates of a run.

    Keys are on the curve P-256: drawing one and signing a certificate takes 0.3 ms.

    Args:
        certificate: its own certificate.
        key: its key.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key
        self._pem = certificate.public_bytes(serialization.Encoding.PEM).decode()

    @classmethod
    def create(cls, name: str, now_s: float, lifetime_s: float) -> "Authority":
        """A new authority with a new key.

        Args:
            now_s: seconds since 1970.
            lifetime_s: seconds after which its certificate expires, and with it all that it signs.
        """
        key, subject = ec.generate_private_key(ec.SECP256R1()), _subject(name)
        builder = _builder(subject, subject, key.public_key(), now_s, lifetime_s)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path, now_s: float) -> "Authority":
        """The authority in a folder that `write` wrote.

        Raises:
            ConfigError: a file is missing or damaged, others may read the key, the two do not fit
                each other, or the certificate is not valid now.
        """
        advice = f"`muster certs {folder}` makes an authority"
        path = folder / CERTIFICATE_FILE
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path}: expected the certificate of an authority, found: {os_reason(error)}; "
                f"{advice}"
            ) from None
        except ValueError:
            raise ConfigError(
                f"{path}: expected a certificate in PEM, found something else; {advice}"
            ) from None
        key = _private_key(folder / KEY_FILE, advice)
        _require_fitting(certificate, key, folder)
        _require_valid(certificate, now_s, path)
        return cls(certificate, key)

    def write(self, folder: Path) -> None:
        """Write the authority to a folder, the key readable only for its owner."""
        folder.mkdir(parents=True, exist_ok=True)
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file = os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(file, "wb") as writing:
            writing.write(pem)
        write_atomic(folder / CERTIFICATE_FILE, self._pem.encode())

    @property
    def expires_at(self) -> datetime:
        """When its certificate expires."""
        return self._certificate.not_valid_after_utc

    def certify(self, run: str, name: str, now_s: float, lifetime_s: float) -> TlsIdentity:
        """A new key and its certificate for a program.

        Args:
            run: the identity of the run.
            now_s: seconds since 1970.
            lifetime_s: seconds after which the certificate expires, or earlier with the authority.

        Raises:
            ConfigError: the authority has expired.
        """
        left_s = self.expires_at.timestamp() - now_s
        if left_s <= 0:
            raise ConfigError(
                f"the authority has expired at {self.expires_at:%Y-%m-%d %H:%M} UTC: expected one "
                "that is valid; make a new one with `muster certs`, and resume the run"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(
            _subject(name),
            self._certificate.subject,
            key.public_key(),
            now_s,
            min(lifetime_s, left_s),
        )
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity_uri(run, name))]
        if name == SERVER:
            names.append(x509.DNSName(server_host(run)))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(_purposes(name)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return TlsIdentity(
            certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            authority=self._pem,
        )


def make_authority(folder: Path, now_s: float, lifetime_s: float) -> Authority:
    """Make an authority of the user's own.

    Args:
        folder: a folder that has no authority yet; it is made if it is missing.
        now_s: seconds since 1970.
        lifetime_s: seconds for which it is valid.

    Raises:
        ConfigError: the folder has an authority, or cannot be written.
    """
    for path in (folder / CERTIFICATE_FILE, folder / KEY_FILE):
        if path.exists():
            raise ConfigError(
                f"{path} exists: expected a folder without an authority; name another folder, or "
                "remove the file if no run uses it any more"
            )
    made = Authority.create("muster", now_s, lifetime_s)
    with refusal_of(f"{folder} cannot be written", "name another folder"):
        made.write(folder)
    return made


def _purposes(name: str) -> Sequence[x509.ObjectIdentifier]:
    """What a program's certificate may be used for. A device cannot pose as a server with it."""
    listens = name in (SERVER, EVALUATION) or name.startswith(_GATEWAYS)
    calls = name == SERVER or not listens
    return [
        *([ExtendedKeyUsageOID.SERVER_AUTH] if listens else []),
        *([ExtendedKeyUsageOID.CLIENT_AUTH] if calls else []),
    ]


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now_s: float,
    lifetime_s: float,
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_s, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(seconds=lifetime_s))
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(path: Path, advice: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_secret(path, advice), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"{path}: expected a key in PEM on an elliptic curve, without a password, found "
            f"something else; {advice}"
        )
    return key


def _require_fitting(
    certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, folder: Path
) -> None:
    """Check that a certificate is an authority's, and its key the given one."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        is_authority = constraints.value.ca
        certificate.verify_directly_issued_by(certificate)
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        is_authority = False
    if not is_authority:
        raise ConfigError(
            f"{folder / CERTIFICATE_FILE}: expected the certificate of an authority that it has "
            "signed itself, found another one; name the folder that `muster certs` made"
        )
    if certificate.public_key() != key.public_key():
        raise ConfigError(
            f"{folder}: expected {KEY_FILE} to be the key of {CERTIFICATE_FILE}, found another "
            "one; restore the file that belongs to it, or make a new authority with `muster certs`"
        )


def _require_valid(certificate: x509.Certificate, now_s: float, path: Path) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begins.timestamp() <= now_s < ends.timestamp():
        raise ConfigError(
            f"{path}: expected a certificate that is valid now, found one that is valid from "
            f"{begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC; make a new authority with "
            "`muster certs`"
        )

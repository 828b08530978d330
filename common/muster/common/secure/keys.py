"""Keys of a secure sum: agreement by X25519, derivation by HKDF, encryption of shares."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE = bytes(12)
"""A key encrypts one message in one direction of one attempt, so the nonce may be constant."""


class PrivateKey:
    """A private key of X25519.

    Attributes:
        public: its public key.

    Args:
        secret: 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes | None:
        """The secret that the owners of both keys have in common; None if `public` is no public
        key. Keys are derived from it."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            return None


def derived_key(agreed: bytes, purpose: str, attempt: bytes) -> bytes:
    """The key of 32 bytes that two devices have in common for a purpose in an attempt."""
    info = b"muster secure sum, " + purpose.encode() + b", " + attempt
    return HKDF(SHA256(), 32, None, info).derive(agreed)


def seal(key: bytes, shares: bytes) -> bytes:
    """Encrypt shares."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Decrypt shares; None if they are not what was encrypted with this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def pad_key(agreed: bytes, attempt: bytes) -> bytes:
    """The key of the pad of two devices."""
    return derived_key(agreed, "pad", attempt)

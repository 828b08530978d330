"""Keys of a secure sum: agreement by X25519, derivation by HKDF, encryption of shares."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE = bytes(12)
"""A key encrypts one message in one direction of one attempt, so the nonce may be constant."""


def agreed_key(private: bytes, public: bytes, purpose: str, attempt: bytes) -> bytes | None:
    """The key of 32 bytes that two devices have in common for a purpose; None if the public key is
    none."""
    try:
        own = X25519PrivateKey.from_private_bytes(private)
        secret = own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return None
    info = b"muster secure sum, " + purpose.encode() + b", " + attempt
    return HKDF(SHA256(), 32, None, info).derive(secret)


def public_of(private: bytes) -> bytes:
    """The public key of a private key of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def seal(key: bytes, shares: bytes) -> bytes:
    """Encrypt shares."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, shares, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Decrypt shares; None if they are not what was encrypted with this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def pad_key(private: bytes, public: bytes, attempt: bytes) -> bytes | None:
    """The key of the pad of two devices."""
    return agreed_key(private, public, "pad", attempt)

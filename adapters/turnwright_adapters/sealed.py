"""Content sealed with AES-256-GCM under a ring of named keys, over the `cryptography` package.

    sealed = 1, length of the key's name, the name, nonce (12 bytes), ciphertext and tag

Everything before the nonce is authenticated together with what the caller binds the text to. A new key is put on the
ring and made current; the older ones stay as long as something sealed with them shall be readable. To take a key off
the ring, and destroy it, erases what was sealed with it, in every copy and backup.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from turnwright.errors import MissingExtra, PortError

__all__ = ["AesGcmCipher", "new_key"]

FORMAT: Final = 1
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def new_key() -> bytes:
    """A fresh key: 256 random bits."""
    return secrets.token_bytes(KEY_BYTES)


class AesGcmCipher:
    """Seals with the *current* of *keys*, opens with any of them: `AesGcmCipher({"2027-01": key}, current="2027-01")`.

    One key serves at most 2**32 texts, as its nonces are random; make another one current before.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise MissingExtra("sealed", "cryptography") from error
        for name, key in keys.items():
            if len(key) != KEY_BYTES:
                raise ValueError(f"key {name!r} has {len(key)} bytes, not {KEY_BYTES}; make one with new_key()")
            if not 1 <= len(name.encode()) <= 255:
                raise ValueError(f"the name of a key has 1 to 255 bytes, not {len(name.encode())}")
        if current not in keys:
            raise ValueError(f"the current key {current!r} is not one of {sorted(keys)}")
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._current = current
        self._head = bytes([FORMAT, len(current.encode())]) + current.encode()
        self._invalid = InvalidTag

    def seal(self, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt and authenticate; see `Cipher.seal`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        text = self._keys[self._current].encrypt(nonce, plaintext, self._head + associated_data)
        return self._head + nonce + text

    def open(self, sealed: bytes, associated_data: bytes) -> bytes:
        """The plaintext; see `Cipher.open`."""
        if len(sealed) < 2 or sealed[0] != FORMAT:
            raise PortError("this was never sealed, and plaintext is refused where content is sealed")
        end = 2 + sealed[1]
        name = sealed[2:end].decode(errors="replace")
        key = self._keys.get(name)
        if key is None:
            raise PortError(f"sealed with the key {name!r}, which is not on the ring")
        nonce, text = sealed[end : end + NONCE_BYTES], sealed[end + NONCE_BYTES :]
        try:
            return key.decrypt(nonce, text, sealed[:end] + associated_data)
        except (self._invalid, ValueError) as error:
            raise PortError(f"sealed with the key {name!r}, and changed or moved since") from error

"""AES-GCM under a ring of keys keeps the contract of the cipher port."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from turnwright_adapters.sealed import AesGcmCipher
from turnwright_contracts import CipherSuite


@pytest.mark.promise("T-05", "N-04")
class TestAesGcmCipher(CipherSuite):
    """The cipher of the `sealed` extra."""

    def make(self, place: Path, keys: Sequence[str]) -> AesGcmCipher:
        return AesGcmCipher({name: sha256(name.encode()).digest() for name in keys}, current=keys[-1])

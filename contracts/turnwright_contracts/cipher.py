"""What every cipher must do: see `turnwright.ports.Cipher`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from turnwright.errors import PortError
from turnwright.ports import Cipher

__all__ = ["CipherSuite"]

TEXT: Final = b'{"cents":500,"to":"\xc3\x9cber"}'
PLACE: Final = b"acme\nr1\n7\nbody"


class CipherSuite:
    """Subclass it and say how a cipher gets its keys."""

    def make(self, place: Path, keys: Sequence[str]) -> Cipher:
        """Give a cipher that has the keys called *keys* and seals with the last; a name is always the same key."""
        raise NotImplementedError

    @pytest.mark.parametrize("text", [b"", b"\x00", TEXT, bytes(range(256)) * 1000])
    def test_what_was_sealed_is_opened(self, tmp_path: Path, text: bytes) -> None:
        """Byte for byte, by another process too."""
        sealed = self.make(tmp_path, ["k1"]).seal(text, PLACE)

        assert text == self.make(tmp_path, ["k1"]).open(sealed, PLACE)

    def test_nothing_of_the_text_can_be_read(self, tmp_path: Path) -> None:
        """No piece of four bytes of it."""
        sealed = self.make(tmp_path, ["k1"]).seal(TEXT, PLACE)

        assert not [TEXT[at : at + 4] for at in range(len(TEXT) - 3) if TEXT[at : at + 4] in sealed]

    def test_a_changed_byte_is_refused(self, tmp_path: Path) -> None:
        """Wherever it is: in the name of the key, in the text or in its seal."""
        cipher = self.make(tmp_path, ["k1"])
        sealed = cipher.seal(TEXT, PLACE)

        for at in range(len(sealed)):
            changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
            assert _is_refused(cipher, changed, PLACE), f"byte {at}"

    def test_a_part_is_refused(self, tmp_path: Path) -> None:
        """However much of it is left, and when something follows it."""
        cipher = self.make(tmp_path, ["k1"])
        sealed = cipher.seal(TEXT, PLACE)

        for end in range(len(sealed)):
            assert _is_refused(cipher, sealed[:end], PLACE), f"{end} bytes"
        assert _is_refused(cipher, sealed + b"\x00", PLACE)

    def test_what_was_never_sealed_is_refused(self, tmp_path: Path) -> None:
        """Or whoever can write to the store could put plaintext in the place of what was sealed."""
        cipher = self.make(tmp_path, ["k1"])

        assert _is_refused(cipher, TEXT, PLACE)
        assert _is_refused(cipher, b"", PLACE)

    def test_what_was_moved_is_refused(self, tmp_path: Path) -> None:
        """It is bound to the place that it was sealed for."""
        cipher = self.make(tmp_path, ["k1"])
        sealed = cipher.seal(TEXT, PLACE)

        for elsewhere in (b"", PLACE + b"2", PLACE[:-1]):
            assert _is_refused(cipher, sealed, elsewhere)

    def test_keys_can_be_rotated(self, tmp_path: Path) -> None:
        """With a newer key, what the older one sealed is still read, and nothing more is sealed with the older one."""
        old, both, new = [self.make(tmp_path, keys) for keys in (["k1"], ["k1", "k2"], ["k2"])]

        assert TEXT == both.open(old.seal(TEXT, PLACE), PLACE)
        assert TEXT == new.open(both.seal(TEXT, PLACE), PLACE)

    def test_a_key_that_is_gone_opens_nothing(self, tmp_path: Path) -> None:
        """To destroy a key is to erase what was sealed with it."""
        old, new = [self.make(tmp_path, keys) for keys in (["k1"], ["k2"])]

        assert _is_refused(new, old.seal(TEXT, PLACE), PLACE)

    def test_an_error_tells_nothing_of_the_text(self, tmp_path: Path) -> None:
        """Errors end up in logs."""
        cipher = self.make(tmp_path, ["k1"])

        with pytest.raises(PortError) as caught:
            cipher.open(TEXT, PLACE)
        assert "500" not in str(caught.value)

    def test_threads_may_share_it(self, tmp_path: Path) -> None:
        """A store's writer and its readers do."""
        cipher = self.make(tmp_path, ["k1"])
        texts = [bytes([number]) * 100 for number in range(200)]

        with ThreadPoolExecutor(8) as threads:
            assert texts == list(threads.map(lambda text: cipher.open(cipher.seal(text, PLACE), PLACE), texts))


def _is_refused(cipher: Cipher, sealed: bytes, place: bytes) -> bool:
    try:
        cipher.open(sealed, place)
    except PortError:
        return True
    return False

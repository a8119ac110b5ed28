"""The generator of plain runs: a stream cipher under a fresh key where one is installed, PCG64 otherwise."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from dplangevin._rng import make_generator, noise_source_name


def test_unseeded_noise_comes_from_chacha20_under_a_fresh_key() -> None:
    randomgen = pytest.importorskip("randomgen", reason="the extra `crypto` is not installed here")
    first, seeded = make_generator(None)
    assert not seeded
    assert isinstance(first.bit_generator, randomgen.ChaCha)
    assert noise_source_name() == "ChaCha"
    second, _ = make_generator(None)
    assert not np.array_equal(first.integers(0, 2**63, 4), second.integers(0, 2**63, 4))
    # not seeded: false alarms 1e-6
    assert stats.kstest(first.standard_normal(20_000), "norm").pvalue > 1e-6


def test_its_stream_is_that_of_the_cipher() -> None:
    """The words are those of an independent implementation of ChaCha20 under the same key."""
    randomgen = pytest.importorskip("randomgen", reason="the extra `crypto` is not installed here")
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers", reason="no `cryptography` here")
    key = bytes(range(7, 39))
    words = randomgen.ChaCha(key=np.frombuffer(key, "<u8"), rounds=20).random_raw(64)
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    assert np.array_equal(words, np.frombuffer(cipher.update(bytes(512)), "<u8"))


def test_without_the_extra_it_is_pcg64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "randomgen", None)
    first, second = make_generator(None)[0], make_generator(None)[0]
    assert isinstance(first.bit_generator, np.random.PCG64)
    assert first.integers(0, 2**63) != second.integers(0, 2**63)


def test_seeded_results_do_not_depend_on_it() -> None:
    assert isinstance(make_generator(3)[0].bit_generator, np.random.PCG64)
    assert make_generator(3)[0].integers(0, 2**63) == np.random.default_rng(3).integers(0, 2**63)

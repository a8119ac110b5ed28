"""Features of images, each a function of its own image: pixels, random convolutions and a scattering transform.

Fashion-MNIST is read from Debian's package dataset-fashion-mnist (MIT licence); digits are those of scikit-learn.
"""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

Singles = NDArray[np.float32]
FOLDER = Path("/usr/share/datasets/fashion-mnist")
N_TRAIN = {"digits": 1_347, "raw": 60_000, "convolutions": 60_000, "scattering": 60_000}
N_ANGLES, N_SCALES, SIZE = 8, 2, 32
N_CHANNELS = 1 + N_SCALES * N_ANGLES + N_ANGLES**2
"""The image, both scales, and the second scale within the first."""


def load(name: str) -> tuple[Singles, NDArray[np.int64]]:
    """Return unit rows and labels, training images first; "scattering:3" is pooled to 3 x 3, "scattering:7" is not.

    Raises FileNotFoundError where the images are not installed.
    """
    kind, _, detail = name.partition(":")
    if kind == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        return to_unit_rows(X[order]), y[order]
    images, y = read_fashion()
    if kind == "raw":
        return to_unit_rows(images.reshape(len(images), -1)), y
    if kind == "convolutions":
        return to_unit_rows(_by_batches(images, lambda part: convolve(part, 56))), y
    return to_unit_rows(_by_batches(images, lambda part: scatter(part, int(detail or 7)))), y


def read_fashion() -> tuple[Singles, NDArray[np.int64]]:
    """Return 60,000 training and 10,000 test images in [0, 1], and their labels."""
    if not FOLDER.is_dir():
        raise FileNotFoundError(f"{FOLDER} is absent; install the package dataset-fashion-mnist")
    parts = []
    for start in ("train", "t10k"):
        images = gzip.decompress((FOLDER / f"{start}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((FOLDER / f"{start}-labels-idx1-ubyte.gz").read_bytes())
        parts.append((np.frombuffer(images, np.uint8, offset=16), np.frombuffer(labels, np.uint8, offset=8)))
    pixels = np.concatenate([images for images, _ in parts]).reshape(-1, 28, 28)
    return pixels.astype(np.float32) / 255, np.concatenate([y for _, y in parts]).astype(np.int64)


def to_unit_rows(X: Any) -> Singles:
    """Return rows of norm 1; a zero row stays zero."""
    X = np.ascontiguousarray(X, np.float32)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    return X


def _by_batches(images: Singles, transform: Any, size: int = 500) -> Singles:
    return np.concatenate([transform(images[i : i + size]) for i in range(0, len(images), size)])


def convolve(images: Singles, n_filters: int, side: int = 6, cells: int = 3) -> Singles:
    """Return means over cells x cells of both signs of random filters of normalised patches."""
    filters = np.random.default_rng(17).standard_normal((side * side, n_filters)).astype(np.float32)
    filters -= filters.mean(axis=0)
    filters /= np.linalg.norm(filters, axis=0)
    patches = np.lib.stride_tricks.sliding_window_view(images, (side, side), axis=(1, 2))[:, ::2, ::2]
    n, height, width = patches.shape[:3]
    flat = patches.reshape(-1, side * side)
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat /= np.sqrt((flat**2).sum(axis=1, keepdims=True) + 0.3)
    answers = (flat @ filters).reshape(n, height, width, n_filters)
    ends = np.linspace(0, height, cells + 1).astype(int)
    found = [
        np.maximum(sign * answers[:, a:b, c:d] - 0.1, 0).mean(axis=(1, 2))
        for sign in (1, -1)
        for a, b in itertools.pairwise(ends)
        for c, d in itertools.pairwise(ends)
    ]
    return np.concatenate(found, axis=1).astype(np.float32)


def _wavelet(scale: int, angle: int) -> NDArray[np.complex64]:
    """Return the Fourier transform of a Morlet wavelet of mean 0."""
    grid = np.arange(-SIZE // 2, SIZE // 2)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    turn, width = np.pi * angle / N_ANGLES, 0.8 * 2.0**scale
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    envelope = np.exp(-(along**2 + across**2 / 4) / (2 * width**2))
    wave = np.exp(1j * 0.75 * np.pi / 2.0**scale * along)
    wavelet = envelope * (wave - (envelope * wave).sum() / envelope.sum()) / (4 * np.pi * width**2)
    return np.asarray(scipy.fft.fft2(scipy.fft.ifftshift(wavelet)), np.complex64)


def _low_pass() -> NDArray[np.complex64]:
    grid = np.arange(-SIZE // 2, SIZE // 2)
    blob = np.exp(-(grid[:, None] ** 2 + grid**2) / (2 * 3.2**2))
    return np.asarray(scipy.fft.fft2(scipy.fft.ifftshift(blob / blob.sum())), np.complex64)


def scatter(images: Singles, cells: int = 7) -> Singles:
    """Return the scattering transform of order 2 with 8 angles and 2 scales, pooled to cells x cells.

    The image and the wavelets' answers are brought to norm 1 each, per image, so that neither outweighs the other.
    """
    wavelets = [[_wavelet(scale, angle) for angle in range(N_ANGLES)] for scale in range(N_SCALES)]
    low_pass = _low_pass()

    def pool(spectrum: NDArray[np.complex64]) -> Any:
        smooth = scipy.fft.ifft2(spectrum * low_pass).real[:, 2:30:4, 2:30:4]
        ends = [(round(i * 7 / cells), max(round((i + 1) * 7 / cells), 1)) for i in range(cells)]
        return np.stack([smooth[:, a:b, c:d].mean(axis=(1, 2)) for a, b in ends for c, d in ends], axis=1)

    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)), mode="reflect")
    spectrum = scipy.fft.fft2(padded)
    channels = [pool(spectrum)]
    for scale in range(N_SCALES):
        for wavelet in wavelets[scale]:
            answer = scipy.fft.fft2(np.abs(scipy.fft.ifft2(spectrum * wavelet)))
            channels.append(pool(answer))
            if scale == 0:
                for second in wavelets[1]:
                    channels.append(pool(scipy.fft.fft2(np.abs(scipy.fft.ifft2(answer * second)))))
    parts = [channels[0], np.concatenate(channels[1:], axis=1)]
    return np.concatenate([to_unit_rows(part) for part in parts], axis=1)

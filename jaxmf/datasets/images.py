"""Images of digits: scikit-learn's bundled ones, MNIST and USPS."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.datasets import parsers
from jaxmf.datasets.cache import Prepared, Recipe, Source, read


class Images(NamedTuple):
    """Grey-level images, one a row.

    Attributes:
        train: (N, D) the images.
        train_labels: (N,) int.
        test: (M, D) further images, M = 0 where the set has no split.
        test_labels: (M,).
        image_shape: (height, width), D = height x width.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    image_shape: tuple[int, int]


def digits() -> Images:
    """scikit-learn's bundled digits: 1797 images of 8 x 8 pixels, grey levels 0 to 16, no split.

    Raises:
        ImportError: scikit-learn is not installed.
    Example:
        >>> digits().train.shape
        (1797, 64)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "the digits come with scikit-learn; pip install 'jaxmf[sklearn]', or use the generated "
            "images of jaxmf.datasets.section_4_2(seed)."
        ) from None
    bundled = load_digits()
    none = np.zeros((0, 64)), np.zeros(0, int)
    return Images(bundled.data, bundled.target, *none, image_shape=(8, 8))


_MNIST_FILES = {
    "x_train": ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "y_train": ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    "x_test": ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    "y_test": ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
}


def _build_mnist(paths: Mapping[str, Path]) -> Prepared:
    arrays = {
        name: parsers.idx(parsers.open_bytes(paths[file]))
        for name, (file, _) in _MNIST_FILES.items()
    }
    return Prepared(arrays, {})


MNIST = Recipe(
    "mnist",
    "mnist.npz",
    sources=tuple(
        Source(file, f"https://ossci-datasets.s3.amazonaws.com/mnist/{file}", md5)
        for file, md5 in _MNIST_FILES.values()
    ),
    build=_build_mnist,
)


def mnist() -> Images:
    """MNIST: 60,000 and 10,000 images of 28 x 28 pixels, grey levels 0 to 255 (uint8).

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document
        recognition.
    """
    arrays = read(MNIST).arrays
    return Images(
        arrays["x_train"].reshape(-1, 784),
        arrays["y_train"].astype(int),
        arrays["x_test"].reshape(-1, 784),
        arrays["y_test"].astype(int),
        (28, 28),
    )


def _build_usps(paths: Mapping[str, Path]) -> Prepared:
    arrays = {}
    for part in ("train", "test"):
        lines = parsers.lines_of(parsers.open_bytes(paths[f"zip.{part}.gz"]))
        arrays[f"y_{part}"], arrays[f"x_{part}_milli"] = parsers.zip_digits(lines)
    return Prepared(arrays, {})


USPS = Recipe(
    "usps",
    "usps.npz",
    sources=tuple(
        Source(file, f"https://hastie.su.domains/ElemStatLearn/datasets/{file}")
        for file in ("zip.train.gz", "zip.test.gz")
    ),
    build=_build_usps,
    sha256="9ca52cd362e342d884a43f41fe2610cae3171a325c9c23a5a61482afa1543452",
)


def usps() -> Images:
    """USPS: 7291 and 2007 handwritten digits of 16 x 16 pixels, grey levels -1 to 1.

    Raises:
        FileNotFoundError: it is not in the folder of data sets and cannot be fetched.

    Reference:
        Hastie, Tibshirani, Friedman, The Elements of Statistical Learning (the "zip" data).
    """
    arrays = read(USPS).arrays
    return Images(
        arrays["x_train_milli"] / np.float32(1000),
        arrays["y_train"].astype(int),
        arrays["x_test_milli"] / np.float32(1000),
        arrays["y_test"].astype(int),
        (16, 16),
    )

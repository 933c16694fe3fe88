import numpy as np
import pytest

import polyarch as pa


def image_task(path, count=40, side=6, channels=1, **settings):
    """Noise of three classes, from a file, so that other processes can load it too."""
    random = np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (count, channels, side, side), np.uint8), y=np.arange(count) % 3)
    return pa.data.load(path, **settings)


@pytest.fixture(scope="session")
def image_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "images.npz"
    image_task(path)
    return path


@pytest.fixture(scope="session")
def images(image_file):
    """Forty images, 24 of them to train on and 16 to judge architectures by."""
    return pa.data.load(image_file, select=0.4, test=0)


@pytest.fixture(scope="session")
def few_images(tmp_path_factory):
    """Twenty smaller ones, 12 of them to train on."""
    return image_task(tmp_path_factory.mktemp("few") / "images.npz", count=20, side=4, select=0.4, test=0)


@pytest.fixture(scope="session")
def spirals():
    return pa.data.load("spirals", points=60, test_points=40)

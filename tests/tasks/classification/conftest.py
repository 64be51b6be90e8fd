import numpy as np
import pytest

from attent.tasks.classification.pictures import Pictures


@pytest.fixture
def pictures() -> Pictures:
    """Pictures of two classes: a light upper half, or a light lower half, and some noise."""
    generator = np.random.default_rng(0)
    classes = np.arange(40) % 2
    pixels = generator.uniform(0, 0.3, (40, 4, 6, 1))
    pixels[classes == 0, :2] += 0.6
    pixels[classes == 1, 2:] += 0.6
    return Pictures(pixels.astype(np.float32), classes, ("above", "below"))

import numpy as np
import pytest

from attent.data.labelled.splitting import stratified
from attent.errors import DataError

CLASSES = np.repeat([0, 1, 2, 3], [101, 53, 7, 1])


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_each_class_gives_its_share(share: float) -> None:
    left, kept = stratified(CLASSES, share, 0)
    assert sorted([*left, *kept]) == [*range(162)]
    assert len(kept) == round(share * 162)
    for number, count in enumerate(np.bincount(CLASSES)):
        of_class = int((CLASSES[kept] == number).sum())
        assert abs(of_class - share * count) < 1
        assert of_class < count


def test_the_seed_decides() -> None:
    first, again, other = (stratified(CLASSES, 0.2, seed)[1].tolist() for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_order_of_classes_says_nothing_of_what_is_drawn() -> None:
    drawn = {int(row) for seed in range(40) for row in stratified(CLASSES, 0.2, seed)[1]}
    assert drawn == set(range(161))  # the last is its class' only example


def test_no_more_are_kept_than_may_be() -> None:
    assert len(stratified(CLASSES, 0.5, 0, most=10)[1]) == 10
    assert len(stratified(CLASSES, 0.0, 0)[1]) == 0


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(DataError, match=r"a share of 0\.1 of 3 examples is not one example"):
        stratified(np.array([0, 1, 1]), 0.1, 0)

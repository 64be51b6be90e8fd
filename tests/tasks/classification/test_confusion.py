import numpy as np
import pytest

from attent.errors import ShapeError
from attent.tasks.classification.evaluation import confusion

LABELS = ("ape", "cat", "dog")


def test_numbers_worked_by_hand() -> None:
    matrix = confusion([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 1], LABELS)
    assert matrix.counts.tolist() == [[2, 1, 0], [0, 2, 0], [0, 1, 0]]
    assert matrix.accuracy == pytest.approx(100 * 4 / 6)
    # 2·2/(2 + 3), 2·2/(4 + 2), 0
    assert matrix.f1.tolist() == pytest.approx([80, 100 * 2 / 3, 0])
    assert matrix.macro_f1 == pytest.approx((80 + 200 / 3) / 3)


def test_the_same_as_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    generator = np.random.default_rng(0)
    classes = generator.integers(0, 7, 500)
    target = np.where(generator.random(500) < 0.7, classes, generator.integers(0, 7, 500))
    matrix = confusion(classes, target, [*"abcdefg"])
    assert matrix.accuracy == pytest.approx(100 * metrics.accuracy_score(classes, target))
    assert matrix.macro_f1 == pytest.approx(100 * metrics.f1_score(classes, target, average="macro"))
    assert (matrix.counts == metrics.confusion_matrix(classes, target)).all()


def test_a_class_that_is_nowhere_does_not_count() -> None:
    assert confusion([0, 1], [0, 1], LABELS).macro_f1 == 100
    assert confusion([], [], LABELS).macro_f1 == 0


def test_mistakes_are_named_the_most_frequent_first() -> None:
    matrix = confusion([0, 0, 0, 1, 2, 2], [1, 1, 2, 1, 1, 2], LABELS)
    assert matrix.top_confusions(2) == [("ape", "cat", 2), ("ape", "dog", 1)]
    assert len(matrix.top_confusions(10)) == 3


def test_the_table_is_aligned() -> None:
    assert confusion([0] * 12 + [1], [0] * 12 + [2], LABELS).table() == [
        "     ape  cat  dog",
        "ape   12    ·    ·",
        "cat    ·    ·    1",
        "dog    ·    ·    ·",
    ]


def test_both_must_be_as_many() -> None:
    with pytest.raises(ShapeError, match="each of 2 classes"):
        confusion([0, 1], [0], LABELS)

from collections import Counter
from random import Random

from attent.tasks.sampling import choose


def test_every_item_is_chosen_equally_often_and_the_largest_number_chooses_the_last() -> None:
    counts = Counter(choose(Random(number).random, "abcd") for number in range(4000))
    assert all(abs(counts[item] - 1000) < 120 for item in "abcd")
    assert choose(lambda: 0.0, "abcd") == "a" and choose(lambda: 1 - 2**-53, "abcd") == "d"

import pytest

from attent.errors import ArgumentError, UnknownNameError
from attent.search.score import PairScore
from attent.tasks.translation.evaluation import bleu, chrf, exact_match, loss

EIGHT = [f"the {a} {b} on the {c} ." for a in ("cat", "dog") for b in ("sat", "lay") for c in ("mat", "sofa")]


def test_scores_worked_by_hand() -> None:
    # precisions 4/5, 3/4, 2/3, 1/2, and no brevity penalty
    measured = bleu(["a b c d x"], ["a b c d e"], "none")
    assert measured.score == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert "tok:none" in measured.signature
    assert chrf(EIGHT, EIGHT).score == pytest.approx(100)
    assert "nc:6" in chrf(["a"], ["a"]).signature
    assert bleu(["no, no, no, no!"], ["no , no , no , no !"]).score == pytest.approx(100)
    assert bleu(["no, no, no, no!"], ["no , no , no , no !"], "none").score < 50
    with pytest.raises(UnknownNameError, match="did you mean '13a'"):
        bleu(["a"], ["a"], "13")
    assert bleu(["Ein Hund rennt weit ."], ["ein hund rennt weit ."]).score < 50
    measured = bleu(["Ein Hund rennt weit ."], ["ein hund rennt weit ."], lowercase=True)
    assert measured.score == pytest.approx(100)
    assert "case:lc" in measured.signature
    assert exact_match(["a", "b ", "c", "d"], ["a", "b", "c", "D"]) == 50.0
    # a loss is a mean over tokens
    assert loss([PairScore(-6.0, 2), PairScore(-1.0, 5)]) == 1.0
    with pytest.raises(ArgumentError, match="at least one"):
        loss([])


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match])
def test_there_must_be_a_translation_for_each_reference(metric) -> None:
    for translations, references in (([], []), (["a"], []), (["a"], ["a", "b"])):
        with pytest.raises(ArgumentError, match=f"got {len(translations)} and {len(references)}"):
            metric(translations, references)

import re
from collections import Counter
from random import Random

import pytest

from attent.tasks.phrases.grammar import (
    EXAMPLES,
    NOUNS,
    VERBS,
    ParsedSentence,
    draw_sentence,
    elide,
    inflect,
    is_held_out,
)


@pytest.fixture(scope="module")
def sentences() -> list[ParsedSentence]:
    draw = Random(0).random
    return [draw_sentence(draw) for _ in range(600)]


def test_the_examples_of_introductions_are_translated_and_parsed() -> None:
    dog, cat = EXAMPLES
    assert (dog.english, dog.french) == ("the black dog sings", "le chien noir chante")
    assert (dog.heads, dog.relations) == ([2, 2, 3, -1], ["det", "amod", "nsubj", "root"])
    assert (cat.english, cat.french) == ("the cat sat on the mat", "le chat était assis sur le tapis")
    assert (cat.heads, cat.relations) == ([1, 2, -1, 5, 5, 2], ["det", "nsubj", "root", "case", "det", "obl"])
    assert all(is_held_out(*sentence.predications[0]) for sentence in EXAMPLES)


def test_heads_form_a_projective_tree_whose_root_is_the_main_verb(sentences: list[ParsedSentence]) -> None:
    verbs = {form for verb in VERBS for form in verb.english.split("/")}
    for sentence in sentences:
        words, heads = sentence.english.split(), sentence.heads
        assert len(words) == len(heads) == len(sentence.relations)
        assert words[heads.index(-1)] in verbs
        assert heads.count(-1) == sentence.relations.count("root") == 1
        for start, head in enumerate(heads):
            path = [start]
            while path[-1] != -1:
                assert heads[path[-1]] not in path
                path.append(heads[path[-1]])
            # all words between a word and its head descend from the head
            inside = range(min(start, head) + 1, max(start, head)) if head >= 0 else range(len(words))
            assert all(head in _ancestors(heads, word) for word in inside)


def _ancestors(heads: list[int], word: int) -> list[int]:
    path = [word]
    while path[-1] != -1:
        path.append(heads[path[-1]])
    return path


def test_verbs_agree_in_both_languages(sentences: list[ParsedSentence]) -> None:
    agreeing = 0
    for sentence in sentences:
        noun, verb = sentence.predications[0]
        words = sentence.english.split()
        root = sentence.heads.index(-1)
        subject = next(
            word
            for word, head, relation in zip(words, sentence.heads, sentence.relations, strict=True)
            if (head, relation) == (root, "nsubj")
        )
        is_plural = subject == inflect(noun.english, 2)
        assert words[root] == inflect(verb.english, 2 * is_plural)
        form = inflect(verb.french, 2 * is_plural + (noun.gender == "f")).split("_")
        assert re.search(r"\b" + r" (?:(?:souvent|toujours) )?".join(form) + r"\b", sentence.french), sentence
        agreeing += is_plural
    assert 150 < agreeing < 450


def test_no_noun_is_used_twice_and_the_subject_is_not_always_as_far_from_its_verb(
    sentences: list[ParsedSentence],
) -> None:
    nouns = {form: noun for noun in NOUNS for form in noun.english.split("/")}
    distances: Counter[int] = Counter()
    for sentence in sentences:
        used = [nouns[word].english for word in sentence.english.split() if word in nouns]
        assert len(used) == len(set(used))
        root = sentence.heads.index(-1)
        pairs = zip(sentence.heads, sentence.relations, strict=True)
        distances[root - [*pairs].index((root, "nsubj"))] += 1
    assert distances.most_common(1)[0][1] < 360 and len(distances) > 6


def test_french_adjectives_precede_or_follow_and_agree(sentences: list[ParsedSentence]) -> None:
    text = " . ".join(sentence.french for sentence in sentences)
    assert not re.search(r"\b(?:le|la|que|de) [aeiouéœh]|\bde les?\b|  ", text)
    assert "petite souris" in text and not re.search(r"petite? (?:\w+ )?petit", text)
    for sentence in sentences:
        for wrong in ("noir chien", "chien petit", "noirs vache", "le souris", "la chien", "une chiens"):
            assert wrong not in sentence.french


@pytest.mark.parametrize(
    ("plain", "elided"),
    [
        ("le oiseau", "l'oiseau"),
        ("une fille que un roi voit", "une fille qu'un roi voit"),
        ("près de la échelle", "près de l'échelle"),
        ("près de le petit arbre", "près du petit arbre"),
        ("près de les bancs", "près des bancs"),
        ("le chat que la histoire", "le chat que l'histoire"),
        ("près de deux  arbres", "près de deux arbres"),
    ],
)
def test_elision(plain: str, elided: str) -> None:
    assert elide(plain) == elided


def test_forms() -> None:
    assert [inflect("noir/noire/noirs/noires", index) for index in range(4)] == ["noir", "noire", "noirs", "noires"]
    assert [inflect("dog/dogs", index) for index in range(4)] == ["dog", "dog", "dogs", "dogs"]
    assert inflect("sat", 3) == "sat"


def test_an_eighth_of_the_combinations_is_held_out() -> None:
    share = sum(is_held_out(noun, verb) for noun in NOUNS for verb in VERBS) / (len(NOUNS) * len(VERBS))
    assert share == pytest.approx(1 / 8, abs=0.01)

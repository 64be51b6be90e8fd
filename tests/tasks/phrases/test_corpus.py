from pathlib import Path

import pytest

from attent.alignment.word_pairs import WordPair, read_word_pairs
from attent.errors import ArgumentError
from attent.tasks.phrases.corpus import conllu, phrases, write_phrases
from attent.tasks.phrases.grammar import EXAMPLES, ParsedSentence, is_held_out


@pytest.fixture(scope="module")
def parts() -> dict[str, list[ParsedSentence]]:
    return phrases(60, 30)


def test_held_out_combinations_are_in_the_test_alone(parts: dict[str, list[ParsedSentence]]) -> None:
    assert [len(part) for part in parts.values()] == [60, 30, 30]
    assert tuple(parts["test"][:2]) == EXAMPLES
    assert all(is_held_out(*sentence.predications[0]) for sentence in parts["test"])
    trained = [pair for name in ("train", "valid") for sentence in parts[name] for pair in sentence.predications]
    assert not any(is_held_out(*pair) for pair in trained)


def test_no_sentence_is_drawn_twice_and_more_to_train_on_leave_the_others_unchanged(
    parts: dict[str, list[ParsedSentence]],
) -> None:
    assert len({sentence.english for part in parts.values() for sentence in part}) == 120
    more, different = phrases(66, 30), phrases(60, 30, seed=1)
    assert (more["valid"], more["test"], more["train"][:60]) == (parts["valid"], parts["test"], parts["train"])
    assert different["train"] != parts["train"] and different["test"][:2] == parts["test"][:2]


def test_a_tree_is_written_in_conllu() -> None:
    assert conllu(EXAMPLES[0]) == (
        "# text = the black dog sings\n"
        "1\tthe\t_\t_\t_\t_\t3\tdet\t_\t_\n"
        "2\tblack\t_\t_\t_\t_\t3\tamod\t_\t_\n"
        "3\tdog\t_\t_\t_\t_\t4\tnsubj\t_\t_\n"
        "4\tsings\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
    )


def test_pairs_of_words_are_written_for_find(parts: dict[str, list[ParsedSentence]], tmp_path: Path) -> None:
    write_phrases(parts, tmp_path / "new")
    assert (
        (tmp_path / "new" / "test.tsv")
        .read_text(encoding="utf-8")
        .startswith(
            "the black dog sings\tle chien noir chante\nthe cat sat on the mat\tle chat était assis sur le tapis\n"
        )
    )
    assert (tmp_path / "new" / "valid.conllu").read_text(encoding="utf-8").count("# text = ") == 30
    subjects = read_word_pairs(tmp_path / "new" / "test-subjects.tsv")
    assert subjects[1] == WordPair("the cat sat on the mat", "sat", "cat") and len(subjects) == 30
    objects = read_word_pairs(tmp_path / "new" / "test-objects.tsv")
    assert 5 < len(objects) < 25 and all(pair.second in pair.text.split() for pair in objects)
    with pytest.raises(ArgumentError, match="cannot be written"):
        write_phrases(parts, tmp_path / "new" / "test.tsv")

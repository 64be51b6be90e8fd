from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from attent.alignment.word_pairs import (
    WordPair,
    parse_pair,
    rank_heads,
    ranking_lines,
    read_word_pairs,
    text_words,
    token_spans,
    word_index,
)
from attent.attention import attend
from attent.errors import ArgumentError, DataError
from attent.views.build_scene import build_scene
from attent.views.scene import Scene

TEXT = "we ate hot pizza"
# [CLS] we ate hot pi zza [SEP], and two heads: of random weights, and of equal ones
LABELS = ["[CLS]", "we", "ate", "hot", "pi", "##zza", "[SEP]"]


def weights_of(seed: int) -> Tensor:
    random = torch.rand(7, 7, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    return torch.stack([random, torch.full((7, 7), 1 / 7)])[None]


def scenes(*weights: Tensor, labels: Sequence[str] = LABELS) -> Callable[[str], Scene]:
    """A model that reads texts in turn with these weights, in two layers."""
    next_weights = iter(weights)
    return lambda text: build_scene([layer := next(next_weights), layer.mT], labels, title=text)


def test_words_lack_spaces_and_punctuation_at_their_ends() -> None:
    words = [word for word, _ in text_words("“Don't,” said the dog — 3.5 times (नमस्ते)!")]
    assert words == ["Don't", "said", "the", "dog", "3.5", "times", "नमस्ते"]
    text = "So, he ate."
    assert all(text[begin:end] == word for word, (begin, end) in text_words(text))


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("He plated food", ["[CLS]", "he", "plate", "##d", "food", "[SEP]"], [(1, 2), (2, 4), (4, 5)]),
        ("Café au lait", ["<s>", "cafe", "au", "la", "it", "</s>"], [(1, 2), (2, 3), (3, 5)]),
        ("a blip here", ["▁a", "▁b", "lip", "▁here"], [(0, 1), (1, 3), (3, 4)]),
        ("ab, c", ["a", "b", ",", " ", "c"], [(0, 2), (4, 5)]),
        ("an emu ran", ["an", "[UNK]", "ran"], [(0, 1), None, (2, 3)]),
        ("a\u00b4b c\u2581d e", ["ab", "cd", "e"], [(0, 1), None, (2, 3)]),
        ("of the sea", ["▁of▁the", "▁sea"], [(0, 1), None, (1, 2)]),
    ],
)
def test_tokens_are_found_in_the_text(text: str, labels: list[str], expected: list[object]) -> None:
    assert token_spans(text, labels) == expected


def test_a_word_is_named_by_itself_or_its_number() -> None:
    words = ["the", "dog", "saw", "the", "C#2", "cat"]
    assert [word_index(words, name) for name in ("dog", "the#1", "the#2", "cat#1", "C#2")] == [1, 0, 3, 5, 4]
    for name, message in (
        ("the", "^the text has 'the' 2 times: choose one as in the#2$"),
        ("the#3", "^the text has 'the' 2 times, so there is no the#3$"),
        ("pizza", "^'pizza' is not a word of the text, whose words are 'the dog saw the C#2 cat'$"),
    ):
        with pytest.raises(ArgumentError, match=message):
            word_index(words, name)


def test_weight_baseline_and_share_are_those_of_the_words() -> None:
    forward, backward = rank_heads(scenes(weights_of(1)), [WordPair(TEXT, "ate", "pizza")])
    # by hand: we, ate, hot and pizza are tokens 1, 2, 3 and 4 to 5
    tokens = weights_of(1)[0, 0].numpy().astype(float)
    columns = np.stack([tokens[:, 1], tokens[:, 2], tokens[:, 3], tokens[:, 4] + tokens[:, 5]], 1)
    words = np.stack([columns[1], columns[2], columns[3], columns[4:6].mean(0)])
    (attention,) = (result for result in forward if (result.layer, result.head) == ("layers.0", 0))
    others = [words[i, j] for i in range(4) for j in range(4) if i != j and (i, j) != (1, 3)]
    assert attention.weight == pytest.approx(words[1, 3])
    assert attention.baseline == pytest.approx(words[0, 2])  # the other pair two words apart
    assert attention.share_above == pytest.approx(sum(weight > words[1, 3] for weight in others) / 11)
    assert attention.interval is None
    (attention,) = (result for result in backward if (result.layer, result.head) == ("layers.0", 0))
    assert (attention.weight, attention.baseline) == pytest.approx((words[3, 1], words[2, 0]))
    assert [result.weight for result in forward] == sorted((result.weight for result in forward), reverse=True)
    assert len(forward) == len(backward) == 4


def test_a_distance_that_occurs_once_has_no_baseline() -> None:
    forward, _ = rank_heads(scenes(weights_of(1)), [WordPair(TEXT, "we", "pizza")])
    assert {attention.baseline for attention in forward} == {None}


def test_a_map_is_read_as_its_numbers_are() -> None:
    torch.manual_seed(5)
    query, key, value = (torch.randn(1, 3, 7, 5) for _ in range(3))
    weights = attend(query, key, value, return_map=True)[1]
    pairs = [WordPair(TEXT, "ate", "pizza")]
    of_map = rank_heads(lambda text: build_scene([weights], LABELS), pairs)
    of_numbers = rank_heads(lambda text: build_scene([weights.dense()], LABELS), pairs)
    for map_ranking, number_ranking in zip(of_map, of_numbers, strict=True):
        assert [result.head for result in map_ranking] == [result.head for result in number_ranking]
        assert [result.weight for result in map_ranking] == pytest.approx([result.weight for result in number_ranking])


def test_texts_are_averaged_with_an_interval() -> None:
    texts = [weights_of(seed) for seed in range(8)]
    pairs = [WordPair(TEXT, "we", "ate")] * 8
    forward, _ = rank_heads(scenes(*texts), pairs)
    (attention,) = (result for result in forward if (result.layer, result.head) == ("layers.0", 0))
    single = [rank_heads(scenes(text), pairs[:1])[0] for text in texts]
    separate = [
        next(result for result in ranking if (result.layer, result.head) == ("layers.0", 0)) for ranking in single
    ]
    assert attention.weight == pytest.approx(np.mean([result.weight for result in separate]))
    assert attention.baseline == pytest.approx(np.mean([result.baseline for result in separate]))  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert attention.share_above == pytest.approx(np.mean([result.share_above for result in separate]))
    assert attention.interval is not None
    low, high = attention.interval
    deviation = np.std([result.weight for result in separate]) / 8**0.5
    assert low < attention.weight < high
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.2)
    (equal, *_) = (result for result in forward if result.head == 1)
    assert equal.interval == pytest.approx((1 / 7, 1 / 7))


def test_pairs_that_the_mask_hides_are_in_no_baseline() -> None:
    causal = torch.full((1, 1, 7, 7), 0.1).tril()
    causal[..., 4, 3] = 0.3
    forward, backward = rank_heads(lambda text: build_scene([causal], LABELS), [WordPair(TEXT, "hot", "ate")])
    # ate → we 0.1 and pizza → hot (0.3 + 0.1) / 2; the pairs of later words do not count
    assert (forward[0].weight, forward[0].baseline) == pytest.approx((0.1, 0.15))
    assert forward[0].share_above == pytest.approx(1 / 5)
    assert backward[0].weight == 0 and backward[0].baseline is None
    lines = ranking_lines(lambda text: build_scene([causal], LABELS), "hot:ate", TEXT)
    assert lines[-2:] == ["ate → hot: 1 head", "hidden by the mask in every head"]


def test_files_hold_a_pair_a_line(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text(f"{TEXT}\tate:pizza\n\n{TEXT}\twe:ate#1\n", encoding="utf-8")
    assert read_word_pairs(file) == [WordPair(TEXT, "ate", "pizza"), WordPair(TEXT, "we", "ate#1")]
    lines = ranking_lines(scenes(weights_of(1), weights_of(2)), str(file), None)
    assert lines[0] == "first word → second word: 4 heads, 2 texts"
    assert (
        lines[1].split("  ")[-4:] == ["weight", "95 % interval", "same distance", "others above"] and len(lines) == 13
    )
    file.write_text(f"{TEXT}\tate:pizza\n{TEXT}\tate:soup\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"^text 2: 'soup' is not a word of the text"):
        ranking_lines(scenes(weights_of(1), weights_of(2)), str(file), None)
    for content, message in (
        (f"{TEXT}\tate:pizza\n{TEXT}\n", "line 2 must be a text, a tab and two words as in ate:pizza"),
        (f"{TEXT}\tate\n", "line 1: two words must be written as in ate:pizza, got 'ate'"),
        ("\n", "has no line of a text, a tab and two words"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_word_pairs(file)


@pytest.mark.parametrize(
    ("find", "text", "message"),
    [
        ("ate:pizza", None, "give a text that has the words, or a file: there is no file ate:pizza"),
        ("ate:ate#1", TEXT, "ate:ate#1 is one word, but two are needed"),
        ("ate:pizza", "we ate cold pizza ate", "the text has 'ate' 2 times"),
        ("we:soup", "we ate hot soup", "no tokens of the model spell 'soup': its vocabulary may lack the word"),
    ],
)
def test_faults_are_named(find: str, text: str | None, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ranking_lines(scenes(weights_of(1)), find, text)


def test_a_model_without_attention_between_the_words_is_refused() -> None:
    cross = build_scene({"decoder.cross_attention": torch.full((1, 1, 2, 7), 1 / 7)}, LABELS, ["a", "b"])
    with pytest.raises(ArgumentError, match="the words of the text do not attend to each other"):
        rank_heads(lambda text: cross, [parse_pair(TEXT, "we:ate")])

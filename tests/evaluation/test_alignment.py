import pytest
import torch

from attent.attention.attend import attend
from attent.attention.map import AttentionMap
from attent.data.text import Pair
from attent.data.tokenizer import CharTokenizer
from attent.errors import ArgumentError, ShapeError, UnknownNameError
from attent.evaluation.alignment import Alignment, aligned, alignment
from attent.models.rnn import RNN
from attent.models.rnn_settings import RnnSettings
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings

TOKENIZER = CharTokenizer("abcde")


def looking_at(columns: list[list[list[int]]], keys: int) -> AttentionMap:
    """A map whose head h of pair b looks in row t mostly at columns[b][h][t]."""
    query = 9.0 * torch.nn.functional.one_hot(torch.tensor(columns), keys).float()
    key = torch.eye(keys).expand(*query.shape[:2], keys, keys)
    return attend(query, key, key, return_map=True)[1]


def test_worked_by_hand() -> None:
    weights = looking_at([[[0, 1, 2], [0, 1, 2]], [[2, 2, 2], [2, 2, 2]]], keys=3)
    links = [[(0, 0), (2, 1), (1, 1), (0, 2)], [(0, 0), (2, 2)]]
    # rows 0, 1, 2 of the first pair: right, right, wrong; rows 0, 2 of the second: wrong, right
    assert alignment(weights, links) == Alignment(right=3, rows=5)
    assert alignment(weights, links, targets=[2]) == Alignment(right=1, rows=2)
    assert alignment(weights, links).share == 60.0


def test_it_is_the_mean_over_heads_that_counts() -> None:
    weights = looking_at([[[0], [0], [1]]], keys=2)
    assert alignment(weights, [[(0, 0)]]).right == 1
    assert alignment(weights, [[(1, 0)]]).right == 0


def test_sums_add_up() -> None:
    assert Alignment(1, 2) + Alignment(3, 5) == Alignment(4, 7)


def test_links_must_be_of_the_pairs_of_the_map() -> None:
    with pytest.raises(ShapeError, match="must be of 2 pairs"):
        alignment(looking_at([[[0]]], keys=2), [[], []])


def test_nothing_looked_at_has_no_share() -> None:
    with pytest.raises(ArgumentError, match="no target position"):
        _ = Alignment().share


def model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=17, heads=2)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_a_models_attention_is_found_by_name() -> None:
    made = model()
    pairs = [Pair("abc", "de", ((0, 0), (1, 0))), Pair("d", "a", ((0, 0),)), Pair("ba", "c")]
    last = aligned(made, pairs, TOKENIZER, TOKENIZER)
    assert last == aligned(made, pairs, TOKENIZER, TOKENIZER, name="decoder.layers.1.cross_attention")
    # the second pair has a single source position to look at
    assert last.rows == 2
    assert last.right >= 1
    assert aligned(made, pairs, TOKENIZER, TOKENIZER, targets=range(1, 9)) == Alignment()


def test_a_model_that_does_not_look_at_the_source_has_no_alignment() -> None:
    blind = RNN(RnnSettings(attention="none", embedding_width=5, width=6), TOKENIZER.size, TOKENIZER.size).eval()
    with pytest.raises(ArgumentError, match="without attention to the source has no alignment"):
        aligned(blind, [Pair("a", "b", ((0, 0),))], TOKENIZER, TOKENIZER)


def test_an_unknown_attention_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'decoder\.layers\.1\.cross_attention'"):
        aligned(model(), [Pair("a", "b", ((0, 0),))], TOKENIZER, TOKENIZER, name="decoder.layer.1.cross_attention")

import math

import pytest
import torch

from attent.data.batches import BatchSize, Bitext
from attent.data.text import Pair
from attent.data.tokenizer import PAD, CharTokenizer
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings
from attent.training.loss import cross_entropy, mean_loss


def test_padding_counts_for_nothing() -> None:
    logits, target = torch.randn(2, 5, 7), torch.tensor([[4, 5, 3, PAD, PAD], [6, 3, PAD, PAD, PAD]])
    logits.requires_grad_()
    loss = cross_entropy(logits, target, 0.1)
    loss.backward()
    assert logits.grad[0, 3:].eq(0).all()
    assert logits.grad[1, 2:].eq(0).all()
    alone = cross_entropy(torch.cat((logits[:1, :3], logits[1:, :2]), 1), torch.tensor([[4, 5, 3, 6, 3]]), 0.1)
    torch.testing.assert_close(loss, alone)


def test_guessing_costs_the_logarithm_of_the_vocabulary() -> None:
    loss = cross_entropy(torch.zeros(1, 3, 7), torch.tensor([[4, 5, 3]]), 0.1)
    assert loss.item() == pytest.approx(math.log(7))


def test_worked_by_hand() -> None:
    # p = (1/4, 3/4), y = 1, ε = 0.2: −0.8 log 3/4 − 0.1 (log 1/4 + log 3/4)
    logits = torch.tensor([[[0.0, math.log(3)]]])
    expected = -0.8 * math.log(3 / 4) - 0.1 * (math.log(1 / 4) + math.log(3 / 4))
    assert cross_entropy(logits, torch.tensor([[1]]), 0.2).item() == pytest.approx(expected)


def test_it_is_summed_in_float32() -> None:
    assert cross_entropy(torch.randn(1, 3, 7, dtype=torch.bfloat16), torch.tensor([[4, 5, 3]])).dtype == torch.float32


def test_the_mean_over_batches_is_that_over_tokens() -> None:
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair(text, text) for text in ("a", "bc", "deb", "cead", "ba")], tokenizer, tokenizer)
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2)
    model = Transformer(settings, tokenizer.size, tokenizer.size).eval()
    one, other = (mean_loss(model, data, BatchSize(pairs=pairs)) for pairs in (5, 2))
    assert one == pytest.approx(other, rel=1e-5)

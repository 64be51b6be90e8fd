import gc

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.data.batches import BatchSize, Bitext
from attent.data.text import Pair
from attent.data.tokenizer import PAD, CharTokenizer
from attent.models.rnn_settings import RnnSettings
from attent.models.settings import build
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings
from attent.training.autotune import Precision
from attent.training.loss import loss_of, mean_loss


def tiny() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, dropout=0.0)
    return Transformer(settings, 9, 9)


def test_padding_counts_for_nothing() -> None:
    data = Bitext([Pair("abcd", "ecb"), Pair("a", "b")], CharTokenizer("abcde"), CharTokenizer("abcde"), keys=1)
    (_, batch), model = next(iter(data.once(BatchSize(pairs=2)))), tiny()
    assert (batch.target_out == PAD).any()
    loss, width = loss_of(model, batch, 0.1, "float32")
    logits = model.output(model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in))
    expected = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, list(model.parameters())) for each in (loss, expected)))
    assert width == 8


def test_in_16_bits_the_loss_is_summed_in_32() -> None:
    data = Bitext([Pair("abcd", "ecb")], CharTokenizer("abcde"), CharTokenizer("abcde"))
    (_, batch), model = next(iter(data.once(BatchSize(pairs=1)))), tiny()
    loss = loss_of(model, batch, 0.1, "bfloat16")[0]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, loss_of(model, batch, 0.1, "float32")[0], atol=3e-2, rtol=3e-2)


def test_the_mean_over_batches_is_that_over_tokens() -> None:
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair(text, text) for text in ("a", "bc", "deb", "cead", "ba")], tokenizer, tokenizer)
    model = tiny().eval()
    one, other = (mean_loss(model, data, BatchSize(pairs=pairs)) for pairs in (5, 2))
    assert one == pytest.approx(other, rel=1e-5)


MODELS: dict[str, TransformerSettings | RnnSettings] = {
    "transformer": TransformerSettings(encoder_layers=1, decoder_layers=2, width=16, feed_forward=16, heads=2, dropout=0.1),
    "rotary": TransformerSettings(
        encoder_layers=1, decoder_layers=1, width=16, feed_forward=16, heads=2, norm="pre", position="rotary", attention_dropout=0.1
    ),
} | {
    f"{attention}, {score}, {cell}": RnnSettings(
        attention=attention, score=score, cell=cell, embedding_width=8, width=8, encoder_width=4, embedding_dropout=0.1, output_dropout=0.1
    )
    for attention, score in (("none", None), ("bahdanau", None), ("luong", "dot"), ("luong", "general"))
    for cell in ("gru", "lstm")
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_an_update_leaves_nothing_in_memory(name: str, precision: Precision) -> None:
    """A tensor that a function has returned and keeps besides would hold the function, and be held by it, for ever."""
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair("abcd", "ecb"), Pair("a", "b")], tokenizer, tokenizer)
    (_, batch), model = next(iter(data.once(BatchSize(pairs=2)))), build(MODELS[name], tokenizer.size, tokenizer.size).train()

    def tensors() -> int:
        loss_of(model, batch, 0.1, precision)[0].backward()
        model.zero_grad()
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    tensors()
    assert tensors() == tensors()

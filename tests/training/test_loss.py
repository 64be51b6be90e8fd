import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.models.build import build
from attent.models.encoder import EncoderModel
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.classification.inputs import LabelledBatch
from attent.tasks.classification.task import classification_cross_entropy
from attent.tasks.fill_mask.examples import MaskedLines
from attent.tasks.fill_mask.task import masked_lm_cross_entropy, masked_lm_scores
from attent.text.batches import Batch, BatchSize, Bitext, Sequences
from attent.text.text import Pair
from attent.text.tokenizer import PAD, CharTokenizer
from attent.training.autotune import Precision
from attent.training.loss import mean_loss, translation_cross_entropy


def tiny() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, dropout=0.0)
    return Transformer(settings, 9, 9)


def two_pairs() -> Batch:
    tokenizer = CharTokenizer("abcde")
    return Bitext([Pair("abcd", "ecb"), Pair("a", "b")], tokenizer, tokenizer, length_multiple=1).batch(np.arange(2))


def test_padding_counts_for_nothing() -> None:
    batch, model = two_pairs(), tiny()
    assert (batch.target_out == PAD).any()
    loss = translation_cross_entropy(model, batch, 0.1, "float32")
    logits = model.output(model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in))
    expected = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(tensor, list(model.parameters())) for tensor in (loss, expected)))


def test_in_16_bits_the_loss_is_summed_in_32() -> None:
    batch, model = two_pairs(), tiny()
    loss = translation_cross_entropy(model, batch, 0.1, "bfloat16")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, translation_cross_entropy(model, batch, 0.1, "float32"), atol=3e-2, rtol=3e-2)
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair(text, text) for text in ("a", "bc", "deb", "cead", "ba")], tokenizer, tokenizer)
    model = tiny().eval()
    first, second = (mean_loss(model, data, BatchSize(pairs=pairs)) for pairs in (5, 2))
    assert first == pytest.approx(second, rel=1e-5)


TRANSFORMER = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 16, "heads": 2}
ROTARY = {"norm": "pre", "position": "rotary", "attention_dropout": 0.1}
RECURRENT = {"embedding_width": 8, "width": 8, "encoder_width": 4, "embedding_dropout": 0.1, "output_dropout": 0.1}


@pytest.fixture(scope="module")
def only_new_objects() -> Iterator[None]:
    """Hides from the garbage collector the millions of objects that imports and earlier tests have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        (TransformerSettings.model_validate(TRANSFORMER), "float32"),
        (TransformerSettings.model_validate(TRANSFORMER | ROTARY), "bfloat16"),
        (RnnSettings.model_validate(RECURRENT | {"attention": "none", "cell": "gru"}), "bfloat16"),
        (RnnSettings.model_validate(RECURRENT | {"attention": "bahdanau", "cell": "lstm"}), "float32"),
        (RnnSettings.model_validate(RECURRENT | {"attention": "luong", "score": "dot", "cell": "lstm"}), "bfloat16"),
        (RnnSettings.model_validate(RECURRENT | {"attention": "luong", "score": "general", "cell": "gru"}), "float32"),
    ],
)
def test_an_update_leaves_nothing_in_memory(settings: Any, precision: Precision) -> None:
    """A tensor that a function has returned and keeps besides would hold the function, and be held by it, for ever."""
    batch, model = two_pairs(), build(settings, 9, 9).train()

    def tensors() -> int:
        translation_cross_entropy(model, batch, 0.1, precision).backward()
        model.zero_grad()
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    tensors()
    assert tensors() == tensors()


SMALL = {"layers": 1, "width": 8, "feed_forward": 7, "heads": 2, "dropout": 0.0}
CLASSIFIER = EncoderSettings.model_validate(
    SMALL | {"input": "vectors", "cls": True, "position": "none", "output_bias": True}
)


def labelled_batch() -> LabelledBatch:
    return LabelledBatch(torch.randn(5, 7, 3), torch.tensor([3, 1, 7, 2, 5]), torch.tensor([0, 1, 3, 3, 2]), 5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_cross_entropy_of_the_vector_in_front(smoothing: float) -> None:
    model, batch = EncoderModel(CLASSIFIER, 3, 4).train(), labelled_batch()
    loss = classification_cross_entropy(model, batch, smoothing, "float32")
    logits = model.output(model(batch.sequence, batch.lengths)[:, 0])
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.classes, label_smoothing=smoothing))
    loss.backward()
    for parameter in (model.cls, model.embedding.projection.weight):
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0
    # what is behind the end does not count
    batch.sequence[1, 1:] = 1e3
    torch.testing.assert_close(classification_cross_entropy(model, batch, smoothing, "float32"), loss)


SIZE = 11
LINES = MaskedLines(Sequences([[4, 5, 6], [7], [8, 9, 10, 4, 5, 6, 7, 8, 9, 10, 4]]), SIZE, 0.3, length_multiple=1)


def make_masked_lm() -> EncoderModel:
    return EncoderModel(EncoderSettings.model_validate(SMALL), SIZE + 1, SIZE)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_the_blanks_alone(smoothing: float) -> None:
    masked_lm, batch = make_masked_lm(), LINES.augmented(np.arange(3), 1, 0)
    loss = masked_lm_cross_entropy(masked_lm, batch, smoothing, "float32")
    logits = masked_lm.output(masked_lm(batch.token_ids, batch.lengths)).flatten(0, 1)[batch.positions]
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.labels, label_smoothing=smoothing))
    loss.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in masked_lm.parameters())


def test_without_a_blank_there_is_nothing_to_learn() -> None:
    masked_lm = make_masked_lm()
    loss = masked_lm_cross_entropy(masked_lm, LINES.augmented(np.arange(3), 1, 0).zero_weight(), 0.1, "float32")
    loss.backward()
    assert loss.item() == 0
    assert all(not weight.grad.any() for weight in masked_lm.parameters())
    built = make_masked_lm().eval()
    torch.nn.init.zeros_(built.to_logits.weight)
    assert masked_lm_scores(built, LINES, BatchSize(2)) == (pytest.approx(math.log(SIZE), abs=1e-5), 0)

import gc
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

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
from attent.tasks.recipe import follow
from attent.tasks.settings import read
from attent.text.batches import BatchSize, Bitext, Sequences
from attent.text.text import Pair
from attent.text.tokenizer import PAD, CharTokenizer
from attent.training.autotune import Precision
from attent.training.loss import mean_loss, translation_cross_entropy
from attent.training.progress import SilentProgress


def tiny() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, dropout=0.0)
    return Transformer(settings, 9, 9)


def test_padding_counts_for_nothing() -> None:
    data = Bitext(
        [Pair("abcd", "ecb"), Pair("a", "b")], CharTokenizer("abcde"), CharTokenizer("abcde"), length_multiple=1
    )
    (_, batch), model = next(iter(data.sorted_batches(BatchSize(pairs=2)))), tiny()
    assert (batch.target_out == PAD).any()
    loss = translation_cross_entropy(model, batch, 0.1, "float32")
    logits = model.output(model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in))
    expected = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(tensor, list(model.parameters())) for tensor in (loss, expected)))


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_r_drop_adds_what_two_readings_with_dropout_differ_by(kind: str) -> None:
    data = Bitext(
        [Pair("abcd", "ecb"), Pair("a", "b")], CharTokenizer("abcde"), CharTokenizer("abcde"), length_multiple=1
    )
    _, batch = next(iter(data.sorted_batches(BatchSize(pairs=2))))
    if kind == "transformer":
        sizes = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=5, heads=2, dropout=0.4)
        model = Transformer(sizes, 9, 9)
    else:
        model = build(RnnSettings(width=8, embedding_width=6, embedding_dropout=0.4), 9, 9)
    doubled = [torch.cat([tensor] * 2) for tensor in (batch.source, batch.source_lengths, batch.target_in)]
    torch.manual_seed(3)
    logits = model.output(model.decode(model.encode(doubled[0], doubled[1]), doubled[2])).log_softmax(-1)
    assert (logits[:2] - logits[2:]).abs().max() > 1e-3
    first, second = (half[batch.target_out != PAD] for half in (logits[:2], logits[2:]))
    target = batch.target_out[batch.target_out != PAD]
    entropy = sum(F.cross_entropy(half, target, label_smoothing=0.1) for half in (first, second)) / 2
    divergence = (first.exp() * (first - second) + second.exp() * (second - first)).sum(-1).mean()
    torch.manual_seed(3)
    loss = translation_cross_entropy(model, batch, 0.1, "float32", r_drop=5.0)
    torch.testing.assert_close(loss, entropy + 5 / 4 * divergence)
    parameters = list(model.parameters())
    torch.testing.assert_close(
        *(
            torch.autograd.grad(tensor, parameters, allow_unused=True)
            for tensor in (loss, entropy + 5 / 4 * divergence)
        ),
        atol=1e-5,
        rtol=1e-4,
    )
    model.eval()
    losses = [translation_cross_entropy(model, batch, 0.1, "float32", r_drop=alpha) for alpha in (0.0, 5.0)]
    torch.testing.assert_close(*losses)


def followed_recipe(folder: Path, file: Path) -> None:
    # the others need no run folder
    follow(read(file), folder if os.environ["RANK"] == "0" else folder / "nowhere", progress=SilentProgress())


@pytest.mark.slow
def test_r_drop_is_in_the_loss_of_every_process(run_processes, settings_file: Path, tmp_path: Path) -> None:
    text = (
        settings_file.read_text(encoding="utf-8")
        .replace("dropout = 0.0", "dropout = 0.4")
        .replace("[training]", "[training]\nr_drop = 0.0")
    )
    losses = list[float]()
    for alpha in ("0.0", "1000.0"):
        (tmp_path / f"{alpha}.toml").write_text(text.replace("r_drop = 0.0", f"r_drop = {alpha}"), encoding="utf-8")
        run_processes(2, followed_recipe, tmp_path / alpha, tmp_path / f"{alpha}.toml")
        records = [
            json.loads(line) for line in (tmp_path / alpha / "log.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        losses.append(next(record["loss"] for record in records if "loss" in record))
    # the mean of the first updates; dropout alone changes it by tenths
    assert losses[1] > losses[0] + 5


def test_in_16_bits_the_loss_is_summed_in_32() -> None:
    data = Bitext([Pair("abcd", "ecb")], CharTokenizer("abcde"), CharTokenizer("abcde"))
    (_, batch), model = next(iter(data.sorted_batches(BatchSize(pairs=1)))), tiny()
    loss = translation_cross_entropy(model, batch, 0.1, "bfloat16")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, translation_cross_entropy(model, batch, 0.1, "float32"), atol=3e-2, rtol=3e-2)


def test_the_mean_over_batches_is_that_over_tokens() -> None:
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair(text, text) for text in ("a", "bc", "deb", "cead", "ba")], tokenizer, tokenizer)
    model = tiny().eval()
    first, second = (mean_loss(model, data, BatchSize(pairs=pairs)) for pairs in (5, 2))
    assert first == pytest.approx(second, rel=1e-5)


MODELS: dict[str, TransformerSettings | RnnSettings] = {
    "transformer": TransformerSettings(
        encoder_layers=1, decoder_layers=2, width=16, feed_forward=16, heads=2, dropout=0.1
    ),
    "rotary": TransformerSettings(
        encoder_layers=1,
        decoder_layers=1,
        width=16,
        feed_forward=16,
        heads=2,
        norm="pre",
        position="rotary",
        attention_dropout=0.1,
    ),
} | {
    f"{attention}, {score}, {cell}": RnnSettings(
        attention=attention,
        score=score,
        cell=cell,
        embedding_width=8,
        width=8,
        encoder_width=4,
        embedding_dropout=0.1,
        output_dropout=0.1,
    )
    for attention, score in (("none", None), ("bahdanau", None), ("luong", "dot"), ("luong", "general"))
    for cell in ("gru", "lstm")
}


@pytest.fixture(scope="module")
def only_new_objects() -> Iterator[None]:
    """Hides from the garbage collector the millions of objects that imports and earlier tests have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_an_update_leaves_nothing_in_memory(name: str, precision: Precision) -> None:
    """A tensor that a function has returned and keeps besides would hold the function, and be held by it, for ever."""
    tokenizer = CharTokenizer("abcde")
    data = Bitext([Pair("abcd", "ecb"), Pair("a", "b")], tokenizer, tokenizer)
    (_, batch), model = (
        next(iter(data.sorted_batches(BatchSize(pairs=2)))),
        build(MODELS[name], tokenizer.size, tokenizer.size).train(),
    )

    def tensors() -> int:
        translation_cross_entropy(model, batch, 0.1, precision).backward()
        model.zero_grad()
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    tensors()
    assert tensors() == tensors()


CLASSIFIER = EncoderSettings(
    input="vectors",
    cls=True,
    layers=1,
    width=8,
    feed_forward=7,
    heads=2,
    dropout=0.0,
    position="none",
    output_bias=True,
)


def labelled_batch(count: int = 5) -> LabelledBatch:
    lengths = torch.tensor([3, 1, 7, 2, 5])[:count]
    return LabelledBatch(torch.randn(5, 7, 3)[:count], lengths, torch.tensor([0, 1, 3, 3, 2])[:count], count)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_cross_entropy_of_the_vector_in_front(smoothing: float) -> None:
    model, batch = EncoderModel(CLASSIFIER, 3, 4), labelled_batch()
    loss = classification_cross_entropy(model, batch, smoothing, "float32")
    logits = model.output(model(batch.sequence, batch.lengths)[:, 0])
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.classes, label_smoothing=smoothing))


def test_what_is_behind_the_end_does_not_count() -> None:
    model, batch = EncoderModel(CLASSIFIER, 3, 4), labelled_batch()
    before = classification_cross_entropy(model, batch, 0.0, "float32")
    batch.sequence[1, 1:] = 1e3
    torch.testing.assert_close(classification_cross_entropy(model, batch, 0.0, "float32"), before)


def test_the_gradient_reaches_the_vector_in_front_and_the_projection() -> None:
    model = EncoderModel(CLASSIFIER, 3, 4).train()
    classification_cross_entropy(model, labelled_batch(), 0.1, "float32").backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for parameter in (model.cls, model.embedding.projection.weight)
    )


SIZE = 11
LINES = MaskedLines(Sequences([[4, 5, 6], [7], [8, 9, 10, 4, 5, 6, 7, 8, 9, 10, 4]]), SIZE, 0.3, length_multiple=1)
MASKED_LM = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2, dropout=0.0)


def make_masked_lm() -> EncoderModel:
    return EncoderModel(MASKED_LM, SIZE + 1, SIZE)


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


def test_a_model_that_knows_nothing_guesses_as_one_does() -> None:
    built = make_masked_lm().eval()
    torch.nn.init.zeros_(built.to_logits.weight)
    loss, right = masked_lm_scores(built, LINES, BatchSize(2))
    assert loss == pytest.approx(math.log(SIZE), abs=1e-5)
    assert right == 0

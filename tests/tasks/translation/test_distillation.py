"""Training translators with teachers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attent.errors import ArgumentError, RunError, ShapeError
from attent.models.build import build
from attent.models.ensemble import Ensemble
from attent.models.settings import TransformerSettings
from attent.runs.config import read_config
from attent.runs.folder import tokenizers_as_text
from attent.search.settings import SearchSettings
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.translation import distillation
from attent.tasks.translation.distillation import Distillation
from attent.tasks.translation.translator import Translator, load, load_ensemble
from attent.text.batches import Batch, Bitext, Sequences, batch_of
from attent.text.text import Pair
from attent.text.tokenizer import BOS, EOS, PAD
from attent.training.loss import translation_cross_entropy

SMALL = "encoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\ndropout = 0.2"
DATES = "training_pairs = 53\nvalidation_pairs = 5\nheld_out_dates = 31\nheld_out_pairs = 7\nheld_out_combinations = 2"
TRAINING = '[training]\nupdates = 3\nbatch_pairs = 8\nprecision = "float32"'
TINY = parse(f'[dates]\nlocales = ["en", "de"]\n{DATES}\n[model]\n{SMALL}\n{TRAINING}', "tiny.toml")
PAIRS = [
    Pair("en | March 3, 2026", "2026-03-03"),
    Pair("de | 3. März 2026", "2026-03-03"),
    Pair("en | May 5, 1999", "1999-05-05"),
]


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    paths = [tmp_path_factory.mktemp("teachers") / str(seed) for seed in (1, 2)]
    for seed, path in enumerate(paths):
        follow(changed(TINY, seed=seed), path)
    return [str(path) for path in paths]


def changed(settings: RunSettings, **training: Any) -> RunSettings:
    return settings.model_copy(update={"training": settings.training.model_copy(update=training)})


def batch_for(translator: Translator) -> Batch:
    bitext = Bitext(PAIRS, translator.source_tokenizer, translator.target_tokenizer)
    return bitext.batch(torch.arange(len(PAIRS)).numpy())


@pytest.mark.parametrize(("top", "has_bias"), [(32, False), (3, True)])
def test_the_word_level_mixes_the_reference_with_the_mean_of_the_distributions(
    teachers: list[str], monkeypatch: pytest.MonkeyPatch, top: int, has_bias: bool
) -> None:
    monkeypatch.setattr(distillation, "TOP", top)
    student = load(teachers[1])
    if has_bias:
        student.model.to_logits.bias = torch.nn.Parameter(torch.randn(student.model.to_logits.out_features))
    batch, weight, smoothing = batch_for(student), 0.3, 0.1
    loss = Distillation(changed(TINY, teacher=tuple(teachers), teacher_weight=weight).training)
    actual = loss(student.model, batch, smoothing, "float32")
    actual.backward()
    gradients = [parameter.grad for parameter in student.model.parameters()]

    def log_probs_of(translator: Translator) -> torch.Tensor:
        model = translator.model
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        return model.output(features).double().log_softmax(-1)

    log_probs = log_probs_of(student)
    mean = sum(log_probs_of(load(path)).exp().detach() for path in teachers) / 2
    size = mean.shape[-1]
    kept = (mean * (mean >= mean.topk(min(top, size)).values[..., -1:])).half().double()
    assert (kept.sum(-1) < 0.9).all() == (top == 3)
    references = torch.nn.functional.one_hot(batch.target_out, size)
    wanted = weight * (kept + (1 - kept.sum(-1, keepdim=True)) / size)
    wanted = wanted + (1 - weight) * ((1 - smoothing) * references + smoothing / size)
    expected = -(wanted * log_probs).sum(-1)[batch.target_out != PAD].mean()
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-5)
    student.model.zero_grad()
    expected.backward()
    for gradient, parameter in zip(gradients, student.model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-6, rtol=1e-4)


def test_the_distributions_of_a_pair_are_computed_once(teachers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    student = load(teachers[0])
    settings, batch = changed(TINY, teacher=tuple(teachers)).training, batch_for(student)
    loss, alone = Distillation(settings), Distillation(settings)
    value = loss(student.model, batch, 0.1, "float32")
    # a pair's distributions do not depend on its batch
    bitext = Bitext(PAIRS, student.source_tokenizer, student.target_tokenizer)
    for row in range(len(PAIRS)):
        alone(student.model, bitext.batch(torch.tensor([row]).numpy()), 0.1, "float32")
    monkeypatch.setattr(Ensemble, "decode", None)
    for taught in (loss, alone):
        assert torch.equal(taught(student.model, batch, 0.1, "float32"), value)
    # beyond a limit, they are computed anew
    monkeypatch.undo()
    monkeypatch.setattr(distillation, "STORED", 0)
    forgetful = Distillation(settings)
    assert torch.equal(forgetful(student.model, batch, 0.1, "float32"), value)
    monkeypatch.setattr(Ensemble, "decode", None)
    with pytest.raises(TypeError):
        forgetful(student.model, batch, 0.1, "float32")


def test_a_teacher_of_few_positions_reads_what_they_suffice_for(
    teachers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    student = load(teachers[0])
    tokenizers = student.source_tokenizer, student.target_tokenizer
    model = TransformerSettings(width=16, heads=2, feed_forward=16, position="learned", maximum_length=20)
    teacher = Translator(build(model, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    monkeypatch.setattr(distillation, "load_ensemble", lambda _: teacher)
    loss = Distillation(changed(TINY, teacher=("teacher",)).training)
    batch = batch_for(student)
    # the batch is padded to 32
    with pytest.raises(ShapeError, match="20"):
        loss(student.model, batch, 0.0, "float32")
    assert loss(student.model, batch.trim_padding(20), 0.0, "float32").isfinite()


def test_the_sequence_level_learns_the_translations_of_the_teachers(
    teachers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    student, teacher = load(teachers[0]), load_ensemble(teachers)
    batch = batch_for(student)
    settings = changed(TINY, teacher=tuple(teachers), teacher_level="sequence", teacher_weight=1.0)
    loss = Distillation(settings.training)
    actual = loss(student.model, batch, 0.1, "float32")
    translations = teacher.search([pair.source for pair in PAIRS], SearchSettings(beam=5))
    targets = Sequences([[BOS, *best[0].tokens, EOS] for best in translations])
    translated = batch_of(batch.source, batch.source_lengths.numpy(), targets, torch.arange(3).numpy(), 16)
    mean = translation_cross_entropy(student.model, translated, 0.1, "float32")
    torch.testing.assert_close(actual, mean * translated.tokens / batch.tokens)
    # each source is translated once
    monkeypatch.setattr(Translator, "search_encoded", None)
    assert torch.equal(loss(student.model, batch, 0.1, "float32"), actual)
    # a batch that counts no predictions has no loss
    assert loss(student.model, batch.zero_weight(), 0.1, "float32").item() == 0.0


def test_references_take_the_other_batches(teachers: list[str]) -> None:
    student = load(teachers[0])
    batch = batch_for(student)
    settings = changed(TINY, teacher=tuple(teachers), teacher_level="sequence", teacher_weight=0.25)
    loss = Distillation(settings.training)
    torch.manual_seed(0)
    losses = [loss(student.model, batch, 0.0, "float32").item() for _ in range(200)]
    plain = translation_cross_entropy(student.model, batch, 0.0, "float32").item()
    assert 130 <= losses.count(plain) <= 170


@pytest.mark.parametrize("level", ["word", "sequence"])
def test_a_student_goes_on_to_the_last_bit(teachers: list[str], tmp_path: Path, level: str) -> None:
    settings = changed(TINY, teacher=tuple(teachers), teacher_level=level)
    follow(changed(settings, updates=5), tmp_path / "whole")
    follow(settings, tmp_path / "parts")
    resume(tmp_path / "parts", {"updates": 5})
    follow(changed(TINY, updates=5), tmp_path / "plain")
    whole, parts, plain = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts", "plain"))
    assert whole == parts != plain
    assert tokenizers_as_text(tmp_path / "whole") == tokenizers_as_text(teachers[0])
    table = read_config(tmp_path / "whole").training
    assert (table["teacher"], table["teacher_level"], table["teacher_weight"]) == (teachers, level, 0.5)
    assert not any(name.startswith("teacher") for name in read_config(tmp_path / "plain").training)


def test_a_teacher_of_another_kind_is_refused_before_a_run_begins(teachers: list[str], tmp_path: Path) -> None:
    taught = changed(TINY, teacher=(teachers[0],))
    other = TINY.model_copy(update={"dates": TINY.dates.model_copy(update={"locales": ("en",)})})
    follow(other, tmp_path / "other")
    with pytest.raises(ArgumentError, match=r"have different vocabularies: a teacher needs those of its student$"):
        follow(taught, tmp_path / "run", init_from=tmp_path / "other")
    with pytest.raises(RunError, match=r"nowhere is not a run folder: there is no such folder"):
        follow(changed(TINY, teacher=(str(tmp_path / "nowhere"),)), tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"different vocabularies, and cannot be an ensemble"):
        follow(changed(TINY, teacher=(teachers[0], str(tmp_path / "other"))), tmp_path / "run")
    table = 'task = "text-generation"\n[lines]\ntrain = "nowhere.txt"\n[training]\nupdates = 1\nbatch_pairs = 2\n'
    with pytest.raises(ArgumentError, match=r"^teacher is for the task translate$"):
        follow(parse(f'{table}teacher = ["run"]\n', "lm.toml"), tmp_path / "run")
    assert not (tmp_path / "run").exists()

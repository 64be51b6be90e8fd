"""What a run makes of texts on a GPU is what it makes of them on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent import load
from attent.alignment.aligner import align, tokenize_pair
from attent.cli.app import run as command
from attent.models.encoder import EncoderModel
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.search.settings import SearchSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, VectorInputs
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.recipe import follow
from attent.tasks.settings import read
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer
from attent.training.progress import Progress
from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.panel import panel_of
from attent.views.terminal import heat_map
from attent.views.walk import walk_run

TOKENIZER = CharTokenizer("abcde ")
TEXTS = ["a b", "bcde", "", "edcba edcba"]
SIZES = {"encoder_layers": 1, "decoder_layers": 2, "width": 8, "feed_forward": 8, "heads": 2}


def transformer(**values: Any) -> Any:
    torch.manual_seed(5)
    return Transformer(TransformerSettings(**(SIZES | values)), TOKENIZER.size, TOKENIZER.size)


def rnn(**values: Any) -> Any:
    torch.manual_seed(5)
    return RNN(RnnSettings(width=8, embedding_width=6, **values), TOKENIZER.size, TOKENIZER.size)


def make_translators(model: Any, gpu: torch.device) -> tuple[Translator, Translator]:
    moved = copy.deepcopy(model).to(gpu)
    return Translator(model, TOKENIZER, TOKENIZER), Translator(moved, TOKENIZER, TOKENIZER)


def test_devices_are_not_mixed_silently(gpu: torch.device) -> None:
    """Or none of these tests could fail."""
    with pytest.raises(RuntimeError, match=r"device|Tensor"):
        torch.add(torch.zeros(3, device=gpu), torch.zeros(3))
    with pytest.raises(TypeError, match="can't convert cuda"):
        torch.zeros(3, device=gpu).numpy()


MODELS = [
    pytest.param(transformer, {}, id="transformer"),
    *(
        pytest.param(transformer, values, id=position, marks=pytest.mark.slow)
        for position, values in {
            "rotary": {"position": "rotary", "norm": "pre"},
            "alibi": {"position": "alibi", "score": "additive", "normalizer": "sparsemax"},
            "relative": {"position": "relative_bias", "score": "gaussian", "normalizer": "entmax15"},
        }.items()
    ),
    pytest.param(rnn, {"attention": "bahdanau"}, id="bahdanau"),
    pytest.param(rnn, {"attention": "luong", "cell": "lstm"}, id="luong", marks=pytest.mark.slow),
    pytest.param(rnn, {"attention": "luong", "local": "p", "local_window": 2}, id="local", marks=pytest.mark.slow),
    pytest.param(rnn, {"attention": "none"}, id="none", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "values"), MODELS)
def test_searches_scores_and_links_are_the_same(
    gpu: torch.device, make: Callable[..., Any], values: dict[str, Any]
) -> None:
    on_cpu, on_gpu = make_translators(make(**values), gpu)
    pairs = [("a b", "c d"), ("bcde", "edc")]
    scores = [[hypothesis.log_probability for hypothesis in translator.score(pairs)] for translator in (on_cpu, on_gpu)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-4)
    if values.get("attention") != "none":
        tokenizeds = [tokenize_pair(*pair, (TOKENIZER, TOKENIZER), "tokens") for pair in pairs]
        assert align(on_gpu.model, tokenizeds) == align(on_cpu.model, tokenizeds)
    searches: list[dict[str, Any]] = [
        {},
        {"beam": 3, "n_best": 2, "length_penalty": 1.0, "no_repeat_ngram": 2, "minimum_length": 3},
        {"sample": True, "n_best": 2, "top_k": 5, "top_p": 0.9},
    ]
    for search in searches:
        settings = SearchSettings(maximum_length=6, **search)
        hypotheses = [item.search(TEXTS, settings, prefixes=["b", "", "", ""]) for item in (on_cpu, on_gpu)]
        scores = [[hypothesis.score for item in part for hypothesis in item] for part in hypotheses]
        assert scores[1] == pytest.approx(scores[0], abs=1e-4)
        # ties of an untrained model are broken by the last digits
        assert [hypothesis[0].tokens[:1] for hypothesis in hypotheses[1]] == [
            hypothesis[0].tokens[:1] for hypothesis in hypotheses[0]
        ]


@pytest.mark.parametrize(
    ("make", "values"), [pytest.param(transformer, {}, marks=pytest.mark.slow), (rnn, {"attention": "luong"})]
)
def test_maps_are_seen(gpu: torch.device, tmp_path: Path, make: Callable[..., Any], values: dict[str, Any]) -> None:
    on_cpu, on_gpu = make_translators(make(**values), gpu)
    for name, attention_map in on_gpu.map("a b", "cd").items():
        expected = on_cpu.map("a b", "cd")[name].weights
        torch.testing.assert_close(attention_map.weights[:].cpu(), expected[:], atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(attention_map.weights.entropy().cpu(), expected.entropy(), atol=1e-4, rtol=1e-3)
    assert "a" in heat_map(panel_of(on_gpu.map("a b", "cd")))
    page(build_scene(on_gpu.map("a b"), title="a b")).save(tmp_path / "page.html")
    growing = StepwiseDecoding(on_gpu, "a b", prefix=TOKENIZER.encode("ab"))
    assert [grown.chosen.piece for grown in growing][:2] == ["a", "b"]
    assert growing.map().keys() == on_cpu.map("a b", "cd").keys()
    assert growing.encoder_maps().keys() <= growing.map().keys()
    if make is transformer:
        assert "softmax" in str(walk_run(on_gpu, "a b"))


def test_blanks_are_filled_and_classes_told(gpu: torch.device, filler: FillMask) -> None:
    blank = filler.fill("the [MASK] was tired", 3)[0]
    on_gpu = FillMask(copy.deepcopy(filler.model).to(gpu), filler.tokenizer).fill("the [MASK] was tired", 3)[0]
    assert [guess.probability for guess in on_gpu.guesses] == pytest.approx(
        [guess.probability for guess in blank.guesses], abs=1e-5
    )
    assert [entry.weight for entry in on_gpu.attention] == pytest.approx(
        [entry.weight for entry in blank.attention], abs=1e-5
    )
    torch.manual_seed(5)
    model = EncoderModel(EncoderSettings(layers=1, width=8, feed_forward=8, heads=2, input="vectors", cls=True), 3, 2)
    inputs = Inputs(labels=("no", "yes"), inputs=VectorInputs(kind="vectors", mean=(0.0,) * 3, deviation=(1.0,) * 3))
    vectors = np.random.default_rng(0).random((5, 4, 3), np.float32)
    on_cpu, moved = Classifier(model, inputs), Classifier(copy.deepcopy(model).to(gpu), inputs)
    for first, second in zip(moved.classify(vectors), on_cpu.classify(vectors), strict=True):
        assert first.probabilities == pytest.approx(second.probabilities, abs=1e-5)
    assert [*moved.maps(vectors)] == [*on_cpu.maps(vectors)]


@pytest.mark.slow
@pytest.mark.usefixtures("few_tokens")
def test_commands_say_the_device_first(
    gpu: torch.device, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    (tmp_path / "pairs.tsv").write_text("fr | 3 mars 2026\t2026-03-03\n", encoding="utf-8")
    follow(read(settings_file), run, progress=Progress())
    capsys.readouterr()
    pairs = str(tmp_path / "pairs.tsv")
    for words in (
        ["train", "--resume", run, "--updates", "3"],
        ["translate", run, "fr | 3 mars 2026"],
        ["score", run, pairs],
        ["align", run, pairs],
        ["evaluate", run],
        ["show", run, "fr | 3 mars 2026"],
        ["walk", run, "fr | 3 mars 2026"],
    ):
        for device in ("auto", "cuda") if words[0] in ("train", "translate") else ("auto",):
            # an untrained model's answer is no date
            assert command([*words, "--device", device]) in (0, 2)
            errors = capsys.readouterr().err.splitlines()
            assert errors[0].startswith("device: cuda:0 ("), words
            assert not [line for line in errors if line.startswith("attent:")], words
            words = ["train", "--resume", run, "--updates", "4"] if words[0] == "train" else words
    assert load(run, "auto").device.type == "cuda"

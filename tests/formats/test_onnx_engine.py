from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _engines import OnnxModel

from attent.errors import ArgumentError
from attent.formats.onnx import write
from attent.runs.folder import Run, read
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import BOS

# the exporter alone takes half a minute on a slow machine
pytestmark = pytest.mark.slow

# lengths that leave padding, an empty text, and a character that nobody knows
TEXTS = ["abc", "", "jihgfedcba", "a", "hüh", "bad", "cabbage", "dig", "fade"]
SEARCHES = [
    SearchSettings(),
    SearchSettings(beam=3, n_best=3, maximum_length=9),
    SearchSettings(sample=True, n_best=2, seed=4, maximum_length=9),
    SearchSettings(beam=2, minimum_length=3, no_repeat_ngram=2),
]


def make_engines(run: Run, folder: Path, manifest: dict[str, Any]) -> tuple[Translator, Translator]:
    tokenizers = run.source_tokenizer, run.target_tokenizer
    return Translator(run.model, *tokenizers), Translator(OnnxModel(folder, manifest), *tokenizers)


def assert_same_hypotheses(actual: Translator, reference: Translator, settings: SearchSettings, **more: Any) -> None:
    for mine, peer in zip(
        actual.search(TEXTS, settings, **more), reference.search(TEXTS, settings, **more), strict=True
    ):
        assert [hypothesis.tokens for hypothesis in peer] == [hypothesis.tokens for hypothesis in mine]
        assert [hypothesis.log_probability for hypothesis in peer] == pytest.approx(
            [hypothesis.log_probability for hypothesis in mine], abs=1e-3
        )


@pytest.mark.parametrize("settings", SEARCHES, ids=["greedy", "beam", "samples", "bounds"])
def test_our_search_finds_the_same_with_graphs(exported, settings: SearchSettings) -> None:
    translator, engine = make_engines(*exported)
    for batch in (1, 3, 64):
        assert_same_hypotheses(translator, engine, settings, batch=batch)


def test_a_prefix_is_continued(exported) -> None:
    assert_same_hypotheses(*make_engines(*exported), SearchSettings(beam=2), prefixes=["12"] * len(TEXTS))


def test_equal_rows_are_computed_once(exported) -> None:
    model = OnnxModel(exported.folder, exported.manifest)
    source, lengths = torch.tensor([[4, 5], [6, 0], [6, 0], [6, 0]]), torch.tensor([2, 1, 1, 1])
    state = model.start(model.encode(source, lengths))
    assert len(state.logits) == 2
    _, state = model.step(state, torch.full((4,), BOS))
    _, state = model.step(state, torch.tensor([5, 6, 7, 7]))
    value = state.tensors["state.written.0.value"]
    assert len(value) == 3
    assert state.written.tolist() == [0, 1, 2, 2]
    # in a beam what is written moves, and the source's side stays
    moved = state.reorder(torch.tensor([0, 2, 1, 1]))
    assert (moved.written.tolist(), moved.source.tolist()) == ([0, 2, 1, 1], [0, 1, 2, 2])
    logits, moved = model.step(moved, torch.tensor([4, 4, 4, 4]))
    np.testing.assert_array_equal(moved.tensors["state.written.0.value"][:, :, :2], value[[0, 2, 1]])
    assert torch.equal(logits[2], logits[3])
    assert len(moved.select(torch.tensor([3])).written) == 1


MODELS: list[dict[str, Any]] = [
    {"activation": "gelu", "share_embeddings": "none", "output_bias": True, "score": "general"},
    {"position": "learned", "maximum_length": 64, "key_value_heads": 1, "score": "gated", "normalizer": "sigmoid"},
    {"position": "alibi", "score": "cosine", "normalizer": "entmax15"},
    {"position": "relative_bias", "score": "additive", "norm": "pre"},
    {"position": "none", "score": "gaussian", "normalizer": "sparsemax", "key_value_heads": 2},
    {"self_attention": "ssru", "decoder_layers": 2},
    {"kind": "rnn", "encoder_layers": 2, "layer_norm": True, "token_in_query": True},
    {"kind": "rnn", "attention": "luong", "cell": "lstm"},
    {"kind": "rnn", "attention": "luong", "input_feeding": False, "score": "concat"},
    {"kind": "rnn", "attention": "none", "decoder_layers": 2, "context_every_step": False, "cell": "lstm"},
]


@pytest.mark.parametrize("settings", MODELS, ids=lambda settings: "-".join(str(value) for value in settings.values()))
def test_every_model_can_be_written(make_run, tmp_path: Path, settings: dict[str, Any]) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    run = read(make_run(**settings))
    translator, exported = make_engines(run, tmp_path, write(run, "RUN", tmp_path, None))
    for search in SEARCHES[:2]:
        assert_same_hypotheses(translator, exported, search)
    assert exported.longest_source == translator.longest_source


def test_graphs_are_not_quantized(exported, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="in float32 only; quantization needs --to ctranslate2"):
        write(exported.run, "RUN", tmp_path, "int8")

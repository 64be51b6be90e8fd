import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from _engines import CTranslate2Engine

from attent.errors import ArgumentError, AttentError
from attent.formats.ctranslate2 import POSITIONS, max_length, unsupported, vocabulary, write
from attent.runs.folder import Run, read
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer, WordTokenizer
from attent.text.tokenizers import BpeTokenizer

# lengths that leave padding, an empty text, and a character that nobody knows
TEXTS = ["abc", "", "jihgfedcba", "a", "hüh", "bad", "cabbage", "dig"]
WELL_SAID = SearchSettings(beam=3, n_best=2, maximum_factor=1.5)


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")


def make_engines(run: Run, folder: Path, quantization: str | None = None) -> tuple[Translator, CTranslate2Engine]:
    manifest = write(run, "RUN", folder, quantization)
    tokenizers = run.source_tokenizer, run.target_tokenizer
    return Translator(run.model, *tokenizers), CTranslate2Engine(folder, manifest, *tokenizers)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "position": "rotary", "key_value_heads": 2},
    {"position": "learned", "maximum_length": 96, "activation": "gelu", "share_embeddings": "all"},
    {"position": "none", "norm": "pre", "output_bias": True, "share_embeddings": "none"},
    {"score": "dot", "key_value_heads": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings)) or "paper")
def test_it_says_what_our_own_engine_says(make_run, tmp_path: Path, settings: dict[str, Any]) -> None:
    translator, exported = make_engines(read(make_run(**settings)), tmp_path)
    for search in (
        SearchSettings(),
        SearchSettings(maximum_length=4),
        SearchSettings(minimum_length=3, no_repeat_ngram=2),
    ):
        tokens = [hypotheses[0].tokens for hypotheses in translator.search(TEXTS, search)]
        for batch in (64, 3):
            assert [hypotheses[0].tokens for hypotheses in exported.search(TEXTS, search, batch=batch)] == tokens


def test_scores_are_log_probabilities_over_what_may_be_said(run: Run, tmp_path: Path) -> None:
    with torch.no_grad():
        # EOS likely, so that translations end by themselves; what is never said, unlikely, so that it weighs nothing
        run.model.decoder.layers[-1].around_feed_forward.norm.bias.copy_(run.model.to_logits.weight[3] * 0.2)
        run.model.to_logits.weight[[0, 2]] = -99 * run.model.decoder.layers[-1].around_feed_forward.norm.bias
    translator, exported = make_engines(run, tmp_path)
    compared = 0
    for mine, peer in zip(translator.search(TEXTS), exported.search(TEXTS), strict=True):
        if mine[0].tokens == peer[0].tokens and 0 < len(mine[0].tokens) < 20:
            compared += 1
            assert peer[0].log_probability == pytest.approx(mine[0].log_probability, abs=1e-3)
            assert peer[0].length_penalty == mine[0].length_penalty
    assert compared


def test_weights_may_be_stored_in_fewer_bits(run: Run, tmp_path: Path) -> None:
    sizes, before = {}, {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    for name in (None, "int8", "bfloat16"):
        (tmp_path / str(name)).mkdir()
        _, reference = make_engines(run, tmp_path / str(name), name)
        assert len(reference.search(TEXTS)) == len(TEXTS)
        sizes[name] = (tmp_path / str(name) / "model.bin").stat().st_size
    assert max(sizes["int8"], sizes["bfloat16"]) < sizes[None]
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.model.state_dict().items())
    with pytest.raises(ArgumentError, match=r"quantization must be one of int8, .*, got 'int3'"):
        write(run, "RUN", tmp_path, "int3")


def test_pieces_go_through_unharmed(make_run, tmp_path: Path) -> None:
    pieces = BpeTokenizer.learn(["many words, and as many pieces of words", "bytes for what is rare"] * 9, 310)
    translator, exported = make_engines(read(make_run(tokenizers=(pieces, pieces), share_embeddings="all")), tmp_path)
    assert (tmp_path / "shared_vocabulary.json").is_file()
    texts = ["many words", "a ▁ and ☃ and\ttabs"]
    assert [hypotheses[0].tokens for hypotheses in exported.search(texts)] == [
        hypotheses[0].tokens for hypotheses in translator.search(texts)
    ]


def test_a_text_longer_than_the_positions_is_left_untranslated(make_run, tmp_path: Path) -> None:
    translator, exported = make_engines(read(make_run(position="learned", maximum_length=40)), tmp_path)
    assert exported.longest_source == translator.longest_source == 32
    long, longest = exported.search(["a" * 33, "b" * 32])
    assert long[0].text == ""
    assert len(longest[0].tokens) <= 39


def test_what_its_search_can_and_cannot_do(run: Run, tmp_path: Path) -> None:
    _, engine = make_engines(run, tmp_path)
    for text, result in zip(TEXTS, engine.search(TEXTS, WELL_SAID), strict=True):
        assert len(result) == (2 if text else 1)
        scores = [hypothesis.score for hypothesis in result]
        assert scores == sorted(scores, reverse=True)
        assert all(len(hypothesis.tokens) <= 1.5 * len(text) for hypothesis in result)
    with pytest.raises(ArgumentError, match="does not sample like attent"):
        engine.search(TEXTS, SearchSettings(sample=True))
    with pytest.raises(ArgumentError, match="does not score prefixes"):
        engine.search(["abc"], prefixes=["1"])


def test_a_missing_package_is_asked_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2.specs.model_spec", None)
    with pytest.raises(AttentError, match=r"needs CTranslate2: in a clone of attent, pip install '\.\[ctranslate2\]'"):
        write(run, "RUN", tmp_path, None)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"score": "vaswani", "normalizer": "softmax", "position": "none"}, None),
        ({"score": "additive"}, "it has no score 'additive', only scaled_dot and dot"),
        ({"normalizer": "sparsemax"}, "it has no normalizer 'sparsemax', only softmax"),
        ({"position": "alibi"}, "it has position 'alibi' only in decoders, not in encoders"),
        ({"position": "relative_bias"}, "one table for all layers, and in this model each layer has its own"),
        ({"kind": "rnn"}, "it does not support recurrent models"),
    ],
)
def test_what_cannot_be_expressed_has_a_reason(make_run, settings: dict[str, str], reason: str | None) -> None:
    result = unsupported(read(make_run(**settings)))
    assert result is None if reason is None else reason in str(result)


@pytest.mark.parametrize(("position", "limit"), [("sinusoidal", POSITIONS), ("learned", 40), ("rotary", None)])
def test_positions_end_where_their_table_does(make_run, position: str, limit: int | None) -> None:
    assert max_length(read(make_run(position=position, maximum_length=40))) == limit


def test_every_id_has_a_name_of_its_own() -> None:
    assert vocabulary(CharTokenizer("ab ")) == ["<pad>", "<unk>", "<s>", "</s>", "a", "b", " "]
    assert vocabulary(WordTokenizer([" a", "a", "<5>", "\n"]))[4:] == [" a", "a", "<5>", "\n"]

    class Same(CharTokenizer):
        def decode(self, ids: object) -> str:
            return super().decode(ids).replace("b", "a")

    assert vocabulary(Same("ab"))[4:] == ["a", "<5>"]
    names = vocabulary(BpeTokenizer.learn(["so many words as there are, so many pieces"] * 9, 300))
    assert len(set(names)) == len(names)
    assert " so" in names

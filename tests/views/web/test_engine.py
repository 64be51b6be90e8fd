"""The engine of live pages against Python, with the weights that the page has: tokens, logits, maps, and words."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _live_engine import Pair, difference, node, randomize, translated

from attent.attention.capture.intervene import intervene
from attent.formats.html import as_data, page_of
from attent.models.build import build
from attent.models.settings import DecoderSettings, EncoderSettings, RnnSettings, TransformerSettings
from attent.runs.config import RunConfig
from attent.runs.folder import Run
from attent.tasks.caption.captioner import Captioner
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Inputs, PictureInputs, TextInputs
from attent.tasks.dates.generated import why_no_date
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.text_generation.stepwise import StepwiseGeneration
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.translator import labels, of_run
from attent.text.tokenizer import EOS, CharTokenizer, respell, unknown_pieces
from attent.text.tokenizers import learn
from attent.views.build_scene import build_scene
from attent.views.pages.page import bundle

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on the path")
BOUND = 1e-4
SOURCE, TARGET = CharTokenizer("abcdefghij"), CharTokenizer("0123456789")
TEXT = ["the dog was tired , so it slept .", "the cat was happy .", "Ünïcode café ▁ x  y — “quoted” 3月 don't"] * 5
SMALL: dict[str, Any] = {"width": 24, "feed_forward": 26, "heads": 4}
KINDS = ("char", "word", "bpe", "unigram")
TRANSFORMERS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "position": "rotary", "activation": "gelu"},
    {"position": "alibi", "heads": 3, "activation": "silu", "share_embeddings": "none", "output_bias": True},
    {"position": "learned", "key_value_heads": 2, "score": "bahdanau", "normalizer": "entmax15", "maximum_length": 99},
    {"position": "relative_bias", "score": "general", "normalizer": "sigmoid", "scale_embeddings": False},
    {"position": "none", "score": "gated", "normalizer": "sparsemax", "key_value_heads": 1},
    {"score": "location", "norm": "pre"},
    {"score": "concat", "normalizer": "hard"},
    {"score": "cosine", "normalizer": "identity"},
    {"score": "gaussian", "norm": "pre"},
    {"score": "dot", "norm": "pre", "position": "learned"},
]
RNNS: list[dict[str, Any]] = [
    {},
    {"attention": "luong"},
    {"attention": "luong", "cell": "lstm", "input_feeding": False, "decoder_layers": 2, "encoder_layers": 2},
    {"attention": "luong", "local": "m", "local_window": 3},
    {"attention": "luong", "local": "p", "local_window": 3, "layer_norm": True},
    {"token_in_query": True, "layer_norm": True, "cell": "lstm"},
    {"attention": "none", "encoder_width": 5},
    {"attention": "none", "context_every_step": False, "cell": "lstm"},
    {"attention": "luong", "scaled_score": True, "normalizer": "sparsemax"},
    {"score": "gated"},
    {"score": "location", "attention": "luong"},
    {"score": "concat", "attention_hidden": 9},
    {"score": "cosine", "share_embeddings": "none", "output_bias": False},
]


def translator_run(settings: Any, tokenizers: tuple[Any, Any] = (SOURCE, TARGET)) -> Run:
    model = randomize(build(settings, tokenizers[0].size, tokenizers[1].size))
    return Run(RunConfig(model=settings), model, dict(zip(("source", "target"), tokenizers, strict=True)), {})


def check_translations(pair: Pair, texts: Sequence[str]) -> None:
    answers = pair.ask(*({"call": "write", "input": text} for text in texts))
    for text, answer in zip(texts, answers, strict=True):
        result = translated(of_run(pair.run), text, answer)
        assert result.is_same, text
        assert max(result.logits, result.maps) <= BOUND, (text, result)


@pytest.mark.parametrize("settings", TRANSFORMERS, ids=str)
def test_a_transformer_writes_what_python_writes(settings: dict[str, Any]) -> None:
    run = translator_run(TransformerSettings(**{"encoder_layers": 2, "decoder_layers": 2, **SMALL, **settings}))
    check_translations(Pair(run), ("abcxj", "a", "jihgfedcba" * 2))
    check_translations(Pair(run, "int8"), ("bad?",))


@pytest.mark.parametrize("settings", RNNS, ids=str)
def test_an_rnn_writes_what_python_writes(settings: dict[str, Any]) -> None:
    run = translator_run(RnnSettings(**{"width": 14, "embedding_width": 10, **settings}))
    check_translations(Pair(run), ("abcxj", "a", "jihgfedcba" * 2))
    check_translations(Pair(run, "int8"), ("bad?",))


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_continues_as_python_does(kind: str) -> None:
    tokenizer = learn(kind, TEXT, None if kind in ("char", "word") else 330)
    for packing, position in (("lines", "rotary"), ("text", "learned")):
        settings = DecoderSettings(
            layers=2, **SMALL, position=position, tie_embeddings=packing == "text", maximum_length=60
        )
        model = randomize(build(settings, tokenizer.size, tokenizer.size))
        lines = {"train": "x", "tokenizer": kind, "maximum_length": 30, "packing": packing}
        config = RunConfig(task="text-generation", tokenizers={"text": kind}, model=settings, corpus={"lines": lines})
        pair = Pair(Run(config, model, {"text": tokenizer}, {}))
        ends = packing == "lines"
        generator = TextGenerator(pair.run.model, tokenizer, context=30 + ends, stops_at_line_end=ends)
        prompts = ("the dog", "", "the cat was\nthe", "zebra", "the dog was tired " * 9)
        force = tokenizer.encode("the dog")
        questions = [{"call": "write", "input": text, "options": {"force": force, "length": 20}} for text in prompts]
        for text, answer in zip(prompts, pair.ask(*questions), strict=True):
            try:
                generation = StepwiseGeneration(generator, text, force, max_new_tokens=20)
            except ValueError as error:
                assert answer.get("error") == str(error)
                continue
            steps = [*generation]
            assert [step.chosen.piece for step in steps] == [step["text"] for step in answer["steps"]]
            assert [step.is_forced for step in steps] == [step["forced"] for step in answer["steps"]]
            assert list(generation.labels) == answer["labels"]
            for step, expected in zip(steps, answer["steps"], strict=True):
                for candidate, offered in zip(step.candidates, expected["candidates"], strict=True):
                    assert abs(candidate.probability - offered["probability"]) <= BOUND
            read = [*generation.prompt, *(step.chosen.token for step in steps)]
            read = read[: len(answer["maps"]["self.0"][0]) - 1]
            assert difference(answer["maps"], build_scene(generator.map_of_tokens(read))) <= BOUND


@pytest.mark.parametrize("kind", KINDS)
def test_blanks_are_filled_as_python_fills_them(kind: str) -> None:
    tokenizer = learn(kind, TEXT, None if kind in ("char", "word") else 330)
    settings = EncoderSettings(layers=2, **SMALL, position="rotary")
    model = randomize(build(settings, tokenizer.size + 1, tokenizer.size))
    sizes = (tokenizer.size + 1, tokenizer.size)
    config = RunConfig(task="fill-mask", tokenizers={"text": kind}, sizes=sizes, model=settings)
    pair = Pair(Run(config, model, {"text": tokenizer}, {}))
    filler = FillMask(pair.run.model, tokenizer)
    texts = ["the dog was [MASK] .", "the _____ slept ____ [MASK] x", "The DOG [MASK]", "foo[MASK]bar", "[MASK]"]
    texts += ["a ▁ 😀 [MASK]", "  [MASK] the", "a_____ ___a [MASK]"]
    for text, answer in zip(texts, pair.ask(*({"call": "fill", "input": text} for text in texts)), strict=True):
        try:
            predictions = filler.fill(text)
        except ValueError as error:
            assert answer.get("error") == str(error)
            continue
        maps = filler.map(text)
        assert list(next(iter(maps.values())).rows) == answer["labels"]
        assert answer["unknown"] == filler.unknown_words(text)
        assert difference(answer["maps"], build_scene(maps)) <= BOUND
        for prediction, blank in zip(predictions, answer["blanks"], strict=True):
            assert prediction.position == blank["place"]
            assert [guess.word for guess in prediction.guesses] == [guess["word"] for guess in blank["guesses"]]
            for guess, expected in zip(prediction.guesses, blank["guesses"], strict=True):
                assert abs(guess.probability - expected["probability"]) <= BOUND


def classifier_run(inputs: Any, size: int, tokenizer: Any, **settings: Any) -> Run:
    labels = ("a", "b", "</script><script>alert(1)</script>")
    of_model = EncoderSettings(layers=2, **SMALL, cls=True, output_bias=True, **settings)
    model = randomize(build(of_model, size, len(labels)))
    named = {} if tokenizer is None else {"text": tokenizer}
    config = RunConfig(
        task="classify",
        tokenizers=dict.fromkeys(named, "word"),
        files=("inputs.json",),
        sizes=(size, 3),
        model=of_model,
    )
    return Run(config, model, named, {"inputs.json": Inputs(labels=labels, inputs=inputs).model_dump_json()})


def test_texts_are_classified_as_python_classifies_them() -> None:
    tokenizer = learn("word", TEXT)
    run = classifier_run(TextInputs(), tokenizer.size, tokenizer, position="learned", maximum_length=12)
    pair = Pair(run)
    classifier = Classifier(pair.run.model, Inputs.read(run.files["inputs.json"]), tokenizer)
    texts = ("the dog", "unknown words here", "the dog was tired , so it slept")
    for text, answer in zip(texts, pair.ask(*({"call": "classify", "input": text} for text in texts)), strict=True):
        prediction = classifier.classify(text, best=3)
        assert list(prediction.labels) == [best["label"] for best in answer["best"]]
        assert difference(answer["maps"], build_scene(classifier.maps([text]))) <= BOUND
        expected = classifier.log_probs(classifier.examples((text,)))[0]
        logits = torch.from_numpy(answer["logits"].copy()).log_softmax(-1)
        assert (logits - expected).abs().max() <= BOUND
        assert answer["labels"] == ["CLS", *tokenizer.pieces(text)]
    empty, long = pair.ask({"call": "classify", "input": " "}, {"call": "classify", "input": "the" + " the" * 11})
    assert empty["error"] == "there is nothing to classify: the text is empty"
    assert "length of 12, more than the 11 tokens, vectors or patches" in long["error"]


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_read_as_python_reads_them(channels: int) -> None:
    colours: Any = "grey" if channels == 1 else "rgb"
    inputs = PictureInputs(
        height=8, width=6, colours=colours, patch=2, mean=(0.3,) * channels, deviation=(0.4, 0.5, 0.6)[:channels]
    )
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 6, channels), np.uint8)
    picture = {"height": 8, "width": 6, "channels": channels, "values": (pixels / 255).ravel().tolist()}
    pair = Pair(classifier_run(inputs, inputs.size, None, position="learned", input="vectors"))
    classifier = Classifier(pair.run.model, Inputs.read(pair.run.files["inputs.json"]))
    answer, wrong = pair.ask(
        {"call": "classify", "input": picture}, {"call": "classify", "input": picture | {"width": 7}}
    )
    assert [best["label"] for best in answer["best"]] == list(classifier.classify(pixels, best=3)[0].labels)
    assert difference(answer["maps"], build_scene(classifier.maps(pixels))) <= BOUND
    assert wrong["error"] == f"the run reads pictures (H, W, C) = (8, 6, {channels}), got (8, 7, {channels})"
    tokenizer = learn("word", TEXT)
    for settings in (
        TransformerSettings(encoder_layers=2, decoder_layers=1, **SMALL, input="vectors", position="rotary"),
        RnnSettings(width=24, embedding_width=10, input="vectors", encoder_layers=2),
        RnnSettings(width=24, embedding_width=10, input="vectors", attention="none", cell="lstm"),
    ):
        model = randomize(build(settings, inputs.size, tokenizer.size))
        config = RunConfig(
            task="caption", tokenizers={"target": "word"}, files=("inputs.json",), sizes=(inputs.size, tokenizer.size),
            model=settings,
        )  # fmt: skip
        files = {"inputs.json": Inputs(labels=(), inputs=inputs).model_dump_json()}
        pair = Pair(Run(config, model, {"target": tokenizer}, files))
        captioner = Captioner(pair.run.model, inputs, tokenizer)
        answer, described = pair.ask({"call": "write", "input": picture}, {"call": "groups", "input": ""})
        tokens = [step["token"] for step in answer["steps"] if step["token"] != EOS]
        assert tokenizer.decode(tokens) == captioner.caption(pixels)[0]
        if settings.kind == "rnn" and settings.attention == "none":
            continue
        scene = captioner.scene(pixels, tokenizer.decode(tokens))
        assert [group["name"] for group in described["groups"]] == [group.name for group in scene.groups]


def test_groups_are_those_of_scenes() -> None:
    for settings in (TransformerSettings(encoder_layers=3, decoder_layers=2, **SMALL), RnnSettings(width=14)):
        pair = Pair(translator_run(settings))
        scene = build_scene(of_run(pair.run).map("abc", "12"))
        (described,) = pair.ask({"call": "groups", "input": ""})
        for group, expected in zip(
            described["groups"], (described_group.describe() for described_group in scene.groups), strict=True
        ):
            assert group == {name: expected[name] for name in group}


def test_heads_are_switched_off_as_interventions_do() -> None:
    for settings, off in (
        (
            TransformerSettings(encoder_layers=2, decoder_layers=2, **SMALL, position="rotary"),
            {"decoder.layers.0.cross_attention": (1,), "encoder.layers.1.self_attention": (0, 3)},
        ),
        (RnnSettings(width=14), {"decoder.cross_attention": (0,)}),
    ):
        pair = Pair(translator_run(settings))
        listed = [{"module": module, "head": head} for module, heads in off.items() for head in heads]
        (answer,) = pair.ask({"call": "write", "input": "abcxj", "options": {"off": listed}})
        translator = of_run(pair.run)
        changes: Any = {module: dict.fromkeys(heads, "zero") for module, heads in off.items()}
        with intervene(translator.model, changes):
            result = translated(translator, "abcxj", answer)
        assert result.is_same
        assert max(result.logits, result.maps) <= BOUND


def test_normalizer_temperature_and_mask_are_replaced() -> None:
    settings = EncoderSettings(layers=2, **SMALL, position="alibi")
    tokenizer = learn("word", TEXT)
    model = randomize(build(settings, tokenizer.size + 1, tokenizer.size))
    sizes = (tokenizer.size + 1, tokenizer.size)
    config = RunConfig(task="fill-mask", tokenizers={"text": "word"}, sizes=sizes, model=settings)
    pair = Pair(Run(config, model, {"text": tokenizer}, {}))
    text = "the dog was tired , so [MASK] slept ."
    masks = {"causal": (-np.inf, 0), "window": (-1, 1)}
    options = [{"normalizer": "sparsemax"}, {"temperature": 0.5}, *({"mask": mask} for mask in masks)]
    answers = pair.ask(*({"call": "fill", "input": text, "options": option} for option in options))
    plain, *_ = pair.ask({"call": "fill", "input": text})
    weights = [np.array(answer["maps"]["self.0"]) for answer in (plain, *answers)]
    scores = np.log(weights[0])
    assert (weights[1] == 0).any()
    np.testing.assert_allclose(weights[1].sum(-1), 1, atol=1e-6)
    powers = np.exp(2 * scores)
    np.testing.assert_allclose(weights[2], powers / powers.sum(-1, keepdims=True), atol=1e-5)
    count = scores.shape[-1]
    for own, (least, most) in zip(weights[3:], masks.values(), strict=True):
        offsets = np.arange(count)[None] - np.arange(count)[:, None]
        allowed = (offsets >= least) & (offsets <= most)
        powers = np.exp(scores) * allowed
        np.testing.assert_allclose(own, powers / powers.sum(-1, keepdims=True), atol=1e-5)


def test_a_mask_is_added_to_self_attention_alone() -> None:
    transformer = TransformerSettings(encoder_layers=1, decoder_layers=1, **SMALL)
    for settings in (transformer, RnnSettings(width=14, embedding_width=10, attention="luong")):
        question = {"call": "write", "input": "abcxj"}
        pair = Pair(translator_run(settings))
        masked, plain = pair.ask(question | {"options": {"mask": "causal"}}, question)
        for name, maps in masked["maps"].items():
            hidden = np.triu(np.ones(np.array(maps).shape[-2:]), 1) > 0
            assert np.array(maps)[:, hidden].any() == name.startswith("cross"), name
        if settings is not transformer:
            np.testing.assert_array_equal(masked["maps"]["cross.0"], plain["maps"]["cross.0"])


def test_a_weight_is_written_out() -> None:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, **SMALL, position="rotary")
    pair = Pair(translator_run(settings))
    for group, layer, head in (("cross", 1, 2), ("decoder", 0, 1), ("encoder", 0, 3)):
        (parts,) = pair.ask({"call": "parts", "input": {"text": "abcxj", "head": [group, layer, head]}})
        query, key, value = (parts[name] for name in ("query", "key", "value"))
        scores = parts["scores"]
        products = query @ key.T / np.sqrt(query.shape[1])
        np.testing.assert_allclose(
            np.where(np.isfinite(scores), scores, 0), np.where(np.isfinite(scores), products, 0), atol=1e-5
        )
        assert len(value) == len(key)
        np.testing.assert_allclose(parts["weights"][-1], parts["row"], atol=0)


def test_what_cannot_be_translated_is_said_in_pythons_words() -> None:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, **SMALL, position="learned", maximum_length=40)
    run = translator_run(settings)
    run = Run(run.config.model_copy(update={"corpus": {"dates": {}}}), run.model, run.tokenizers, {})
    texts = ["", "a" * 33, "a 2024", "٢٠٢٤", "2024a", "12024", "mmxx", "𝟮𝟬𝟮𝟰", "0999 1799 2201", "२२०० b"]
    for text, answer in zip(texts, Pair(run).ask(*({"call": "write", "input": text} for text in texts)), strict=True):
        reason = of_run(run).read(text).refusal if text else "there is nothing to translate: the text is empty"
        assert answer.get("error") == reason, text
        assert len(text) == 33 or not text or reason == why_no_date(text)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_become_tokens_and_tokens_texts_as_in_python(kind: str) -> None:
    random.seed(1)
    tokenizer = learn(kind, TEXT, None if kind in ("char", "word") else 330)
    alphabet = "the dogcatslept .,  ▁üÜéÉ́e—“”’'3月３\u00a0\u2009\t\n\u1680xyz😀\U0010ffff\U0010fffeÅﬁ①\ufeff\x85\x1c_"
    words = ["the", "The", "DOG", "slept", "café", "cafe\u0301", "don't", "don’t", "  ", "3月", "３"]
    texts = ["".join(random.choices(alphabet, k=random.randrange(25))) for _ in range(200)]
    texts += [" ".join(random.choices(words, k=random.randrange(8))) for _ in range(100)]
    ids = [random.choices(range(tokenizer.size), k=random.randrange(12)) for _ in range(200)]
    answer = node(
        bundle("engine/tokenizers")
        + """
        const { tokenizer: own, texts, ids } = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const { tokenizerOf, respelled, labelOf, unknownPieces } = module_engine_tokenizers;
        const tokenizer = tokenizerOf(own);
        const seen = [(text) => tokenizer.encode(text), (text) => tokenizer.pieces(text)];
        seen.push((text) => respelled(text, tokenizer), (text) => unknownPieces(text, tokenizer));
        const read = texts.map((text) => seen.map((f) => f(text)));
        const labels = (tokens) => tokens.map((token) => labelOf(tokenizer, token));
        const written = ids.map((tokens) => [tokenizer.decode(tokens), labels(tokens)]);
        process.stdout.write(JSON.stringify({ read, written }));
        """,
        {"tokenizer": as_data(tokenizer, "run"), "texts": texts, "ids": ids},
    )
    for text, (encoded, pieces, spelled, unknown) in zip(texts, answer["read"], strict=True):
        form, form_ids = respell(text, tokenizer)
        assert (encoded, pieces) == (tokenizer.encode(text), tokenizer.pieces(text)), text
        assert (spelled["text"], spelled["ids"]) == (form, list(form_ids)), text
        assert unknown == unknown_pieces(text, tokenizer), text
    for tokens, (text, named) in zip(ids, answer["written"], strict=True):
        assert (text, tuple(named)) == (tokenizer.decode(tokens), labels(tokenizer, tokens))


@pytest.mark.slow
def test_in_a_browser_a_page_writes_what_python_writes(window: Any, tmp_path: Path) -> None:
    texts = ["abcxj", "jihgfedcba" * 2]
    for number, settings in enumerate(
        (
            TransformerSettings(encoder_layers=2, decoder_layers=2, **SMALL, position="rotary", norm="pre"),
            RnnSettings(width=14, embedding_width=10, attention="luong"),
        )
    ):
        run = translator_run(settings)
        pair = Pair(run)
        file = tmp_path / f"{number}.html"
        file.write_text(page_of(run, "run"), encoding="utf-8")
        answers = window.open(file).evaluate(
            """async (texts) => {
                const description = JSON.parse(document.getElementById("description").textContent);
                const weights = await module_unpacked.unpacked("weights");
                const engine = module_engine_engine.open({ description, weights });
                const steps = (text) => [...engine.write(text)].filter(({ kind }) => kind === "token");
                return texts.map((text) => steps(text).map(({ token, logits }) => ({ token, logits: [...logits] })));
            }""",
            texts,
        )
        for text, steps, answer in zip(
            texts, answers, pair.ask(*({"call": "write", "input": text} for text in texts)), strict=True
        ):
            assert [step["token"] for step in steps] == [*of_run(pair.run).search(text)[0].tokens, EOS]
            # the same script computes the same bits under node
            for step, expected in zip(steps, answer["steps"], strict=True):
                np.testing.assert_allclose(step["logits"], expected["logits"], atol=1e-6)
    assert [address for address in window.requests if not address.startswith("file:")] == []

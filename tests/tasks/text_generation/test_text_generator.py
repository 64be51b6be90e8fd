import math
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, DataError, RunError
from attent.models.language_model import LanguageModel
from attent.models.settings import DecoderSettings
from attent.ops import native
from attent.runs.folder import RunConfig, RunWriter
from attent.search.settings import GenerationSettings
from attent.tasks.loading import load
from attent.tasks.text_generation.continuation import GeneratedText
from attent.tasks.text_generation.stepwise import StepwiseGeneration
from attent.tasks.text_generation.task import evaluate_language_model
from attent.tasks.text_generation.text_generator import FORBIDDEN, TextGenerator
from attent.text.tokenizer import BOS, EOS
from attent.text.tokenizers import learn

PROMPTS = ["the dog", "", "the cat was happy", "the dog was tired , so it"]
DRAWN = GenerationSettings(max_new_tokens=11, sample=True, seed=5)


def small(
    context: int | None = None, *, stops_at_line_end: bool = True, kind: str = "word", **settings: object
) -> TextGenerator:
    torch.manual_seed(7)
    texts = ["the dog was tired , so it slept .", "the cat was happy ."] * 3
    tokenizer = learn(kind, texts, 300 if kind == "bpe" else None)
    values = {"layers": 2, "width": 12, "feed_forward": 7, "heads": 2, "position": "rotary"} | settings
    model = LanguageModel(DecoderSettings.model_validate(values), tokenizer.size, tokenizer.size)
    return TextGenerator(model, tokenizer, context=context, stops_at_line_end=stops_at_line_end)


@pytest.mark.parametrize("prompt", PROMPTS)
@torch.no_grad()
def test_greedy_takes_the_likeliest_token_of_the_whole_model(generator: TextGenerator, prompt: str) -> None:
    generated = generator.generate(prompt, GenerationSettings(max_new_tokens=7))
    # the whole model, run anew for each token
    tokens, new, total = generator.encode(prompt), list[int](), 0.0
    while len(new) < 7 and EOS not in new:
        log_probs = generator.model.output(generator.model(torch.tensor([[BOS, *tokens, *new]])))[0, -1].log_softmax(-1)
        allowed = log_probs.clone()
        allowed[FORBIDDEN] = -math.inf
        new.append(int(allowed.argmax()))
        total += float(log_probs[new[-1]])
    assert list(generated.tokens) == new
    assert generated.log_probability == pytest.approx(total, abs=1e-4)
    assert generated.text == prompt + generated.continuation
    assert not set(generated.tokens) & set(FORBIDDEN)


@pytest.mark.parametrize("has_library", [pytest.param(True, marks=pytest.mark.needs_native), False])
def test_a_text_does_not_depend_on_its_neighbours(has_library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_library:
        monkeypatch.setattr(native, "library", lambda: None)
    generator = small()
    for settings in (GenerationSettings(max_new_tokens=11), DRAWN):
        single = [generator.generate(prompt, settings) for prompt in PROMPTS]
        assert generator.generate(PROMPTS, settings) == single
        assert generator.generate(PROMPTS[::-1], settings) == single[::-1]
        assert generator.generate([], settings) == []


def test_draws_are_a_function_of_seed_prompt_and_copy(generator: TextGenerator) -> None:
    copies = generator.generate("the dog", DRAWN.model_copy(update={"copies": 5}))
    assert isinstance(copies, list)
    assert copies[0] == generator.generate("the dog", DRAWN)
    assert len({copy.tokens for copy in copies}) > 1
    assert generator.generate(["the cat", "the dog"], DRAWN.model_copy(update={"copies": 5}))[5:] == copies
    assert generator.generate("the dog", DRAWN.model_copy(update={"seed": 6})) != copies[0]
    # the first tokens of a longer text are those of a shorter one
    longer = generator.generate("the dog", DRAWN.model_copy(update={"max_new_tokens": 2**53}))
    assert longer.tokens[: len(copies[0].tokens)] == copies[0].tokens


def test_samples_have_the_probabilities_of_the_model() -> None:
    generator = small()
    texts = generator.generate(["the"], GenerationSettings(max_new_tokens=1, sample=True, copies=4003))
    counts = np.bincount([text.tokens[0] for text in texts], minlength=generator.tokenizer.size)
    probs = generator.next_token_probs(generator.encode("the")).numpy().copy()
    probs[FORBIDDEN] = 0
    assert abs(counts / 4003 - probs / probs.sum()).max() < 0.03
    settings = GenerationSettings(max_new_tokens=1, sample=True, copies=97, top_k=2)
    assert {text.tokens[0] for text in generator.generate(["the"], settings)} == set(probs.argsort()[-2:].tolist())
    cold = GenerationSettings(max_new_tokens=1, sample=True, copies=7, temperature=1e-4)
    assert {text.tokens[0] for text in generator.generate(["the"], cold)} == {int(probs.argmax())}


@pytest.mark.parametrize(
    ("kind", "settings"), [("word", DRAWN), ("bpe", GenerationSettings(max_new_tokens=13)), ("char", DRAWN)]
)
def test_pieces_are_together_the_text(kind: str, settings: GenerationSettings) -> None:
    generator = small(kind=kind)
    for prompt in ("the dog", ""):
        assert "".join(generator.stream(prompt, settings)) == generator.generate(prompt, settings).continuation


@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_a_text_may_be_longer_than_the_context(position: str) -> None:
    generator = small(7, stops_at_line_end=False, position=position, maximum_length=7)
    lengths = list[int]()
    step = generator.model.step

    def counted(state, tokens):
        lengths.append(state.length)
        return step(state, tokens)

    generator.model.step = counted
    whole = generator.generate("the dog", GenerationSettings(max_new_tokens=31))
    assert len(whole.tokens) == 31
    # each window but the first begins with half of the one before it, and none is longer than the context
    assert lengths[:7] == list(range(7))
    assert lengths[7:14] == list(range(7))
    assert max(lengths) == 6
    texts = generator.generate(["the dog", "the cat was happy ."], GenerationSettings(max_new_tokens=31))
    assert texts[0] == whole
    # the token after a window is that of the last three tokens behind BOS
    tokens = [*generator.encode("the dog"), *whole.tokens]
    probs = generator.next_token_probs(tokens[4:7])
    probs[FORBIDDEN] = 0
    assert tokens[7] == int(probs.argmax())


def test_a_model_of_running_text_goes_on_behind_the_end_of_a_line() -> None:
    generator = small(stops_at_line_end=False)
    with torch.no_grad():
        generator.model.embedding.tokens.weight[EOS] *= 30
    text = generator.generate("the dog", GenerationSettings(max_new_tokens=23, sample=True, seed=2))
    assert EOS in text.tokens
    assert len(text.tokens) == 23
    assert text.continuation.count("\n") == text.tokens.count(EOS)
    assert generator.encode("the\ndog") == [*generator.encode("the"), EOS, *generator.encode("dog")]
    ended = small()
    ended.model.load_state_dict(generator.model.state_dict())
    assert "\n" not in ended.generate("the dog", GenerationSettings(max_new_tokens=23, sample=True, seed=2)).text


def test_log_probs_are_those_of_each_next_token() -> None:
    generator = small()
    tokens = [*generator.encode("the dog was tired ."), EOS]
    expected = [float(generator.next_token_probs(tokens[:index])[token].log()) for index, token in enumerate(tokens)]
    assert generator.log_probs(tokens).tolist() == pytest.approx(expected, abs=1e-5)
    assert generator.log_probs([]).shape == (0,)
    windows = small(3)
    parts = [windows.log_probs(tokens[:3]), windows.log_probs(tokens[3:])]
    assert windows.log_probs(tokens).tolist() == pytest.approx(torch.cat(parts).tolist(), abs=1e-6)


def test_maps_have_the_tokens_that_are_read() -> None:
    maps = small().map("the dog slept")
    assert list(maps) == ["decoder.layers.0.self_attention", "decoder.layers.1.self_attention"]
    labelled = maps["decoder.layers.1.self_attention"]
    assert labelled.rows == labelled.columns == ("<s>", " the", " dog", " slept")
    assert labelled.gradients is None
    gradients = small().map("the dog slept", gradients=True)["decoder.layers.1.self_attention"].gradients
    assert gradients is not None
    # the last position predicts a token that is not there
    assert [bool(row.abs().sum() > 0) for row in gradients.dense()[0].sum(0)] == [True, True, True, False]
    with pytest.raises(DataError, match="the text has 4 tokens, more than the 3 that this model can read"):
        small(position="learned", maximum_length=3).map("the dog slept")


def written(generator: TextGenerator, folder: Path, corpus: dict[str, object]) -> Path:
    kinds = {"text": "word"}
    config = RunConfig(task="text-generation", tokenizers=kinds, model=generator.model.settings, corpus=corpus)
    with RunWriter(folder) as run:
        run.finish(config, generator.model, generator.tokenizer)
    return folder


def test_a_run_folder_is_loaded_by_its_task(generator: TextGenerator, tmp_path: Path) -> None:
    for packing, context in (("lines", 32), ("text", 31)):
        corpus = {"lines": {"train": "a.txt", "maximum_length": 31, "packing": packing}}
        loaded = load(written(generator, tmp_path / packing, corpus))
        assert (loaded.context, loaded.stops_at_line_end) == (context, packing == "lines")
        # EOS is a line break in running text
        settings = GenerationSettings(max_new_tokens=3)
        assert loaded.generate("the dog", settings).tokens[:1] == generator.generate("the dog", settings).tokens[:1]
    with pytest.raises(RunError, match=r"config\.json is damaged: the settings of its corpus cannot be used"):
        load(written(generator, tmp_path / "run", {}))


LINES = ["the dog was happy .", "", "the cat slept , so it was tired ."]


def test_every_token_and_every_end_counts(generator: TextGenerator) -> None:
    report = evaluate_language_model(generator, LINES)
    encoded = [generator.tokenizer.encode(line) for line in LINES if line]
    assert (report.lines, report.tokens, report.unknown, report.long) == (2, sum(map(len, encoded)) + 2, 0, 0)
    assert report.bytes == len("\n".join([LINES[0], LINES[2], ""]))
    nats = 0.0
    for line in encoded:
        with torch.no_grad():
            logits = generator.model.double().output(generator.model(torch.tensor([[BOS, *line]])))[0]
        nats -= float(logits.log_softmax(-1)[range(len(line) + 1), [*line, EOS]].sum())
    assert report.nats == pytest.approx(nats / report.tokens, abs=1e-5)
    assert report.table["bits"] == pytest.approx(report.nats / math.log(2))
    assert report.table["bits_per_byte"] == pytest.approx(report.nats / math.log(2) * report.tokens / report.bytes)
    assert report.table["perplexity"] == pytest.approx(math.exp(report.nats))


def test_unknown_words_are_counted_and_long_lines_left_out(generator: TextGenerator) -> None:
    report = evaluate_language_model(generator, ["the bird was a bird ."])
    assert report.unknown == 3
    assert evaluate_language_model(generator, ["", ""]) is None
    generator.model.__class__ = type("Short", (type(generator.model),), {"longest": 5})
    report = evaluate_language_model(generator, ["the dog slept .", "the dog was tired ."])
    assert (report.lines, report.long) == (1, 1)


def test_running_text_is_read_across_its_lines(generator: TextGenerator) -> None:
    running = TextGenerator(generator.model, generator.tokenizer, context=5, stops_at_line_end=False)
    by_line, by_window = evaluate_language_model(generator, LINES), evaluate_language_model(running, LINES)
    text = [token for line in LINES if line for token in (*generator.tokenizer.encode(line), EOS)]
    assert by_window.tokens == by_line.tokens == len(text)
    assert by_window.nats == pytest.approx(-float(running.log_probs(text).mean()))
    assert by_window.nats != pytest.approx(by_line.nats, abs=1e-6)


@pytest.mark.parametrize("prompt", ["", "the dog"])
def test_steps_write_what_generate_does_with_the_alternatives(generator: TextGenerator, prompt: str) -> None:
    generation = StepwiseGeneration(generator, prompt, top_k=3, max_new_tokens=7)
    steps = list(generation)
    whole = generator.generate(prompt, GenerationSettings(max_new_tokens=7))
    assert [step.chosen.token for step in steps] == list(whole.tokens)
    assert generation.continuation == whole.continuation
    tokens = generator.encode(prompt)
    for step in steps:
        probs = generator.next_token_probs(tokens)
        assert [candidate.probability for candidate in step.candidates] == sorted(
            (c.probability for c in step.candidates), reverse=True
        )
        assert step.chosen.probability == pytest.approx(float(probs[step.chosen.token]), abs=1e-5)
        assert len(step.candidates) == 3
        tokens.append(step.chosen.token)
    (rows,) = {labelled.rows for labelled in generation.map().values()}
    assert rows == generator.labels([2, *(token for token in tokens if token != EOS)])


def test_what_is_given_comes_first_and_the_context_ends_it(generator: TextGenerator) -> None:
    short = TextGenerator(generator.model, generator.tokenizer, context=6, stops_at_line_end=False)
    prefix = generator.encode("the dog was")
    generation = StepwiseGeneration(short, "so it", prefix)
    assert [(step.chosen.token, step.is_forced) for step in generation][:3] == [(token, True) for token in prefix]
    assert len(generation.tokens) == 4
    with pytest.raises(ArgumentError, match="the text has 6 tokens, more than the 5 that this model can read"):
        StepwiseGeneration(short, "so it slept", prefix)
    with pytest.raises(ArgumentError, match="a prefix must consist of word ids from 1 to"):
        StepwiseGeneration(generator, "the", [EOS])


def test_a_continued_scene_shows_the_prompt_and_what_follows(generator: TextGenerator) -> None:
    generated = generator.generate("the dog", GenerationSettings(max_new_tokens=5))
    assert isinstance(generated, GeneratedText)
    scene = generator.continued_scene("the dog", 5)
    assert scene.title == generated.text
    read = [token for token in generated.tokens if not generator.ends(token)]
    labels = generator.labels([BOS, *generator.encode("the dog"), *read])
    (group,) = scene.groups
    assert scene.texts["tokens"].labels == labels
    assert group.shape[1:] == (len(labels), len(labels))

"""Decoder-only models of transformers generate, and show their attention, as their own eager code does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention.capture.intervene import intervene
from attent.errors import ArgumentError, DataError
from attent.search.settings import GenerationSettings
from attent.tasks.pretrained import PretrainedGenerator, PretrainedModel, load
from attent.tasks.text_generation.continuation import GeneratedText
from attent.tasks.text_generation.stepwise import StepwiseGeneration

TEXT, COUNT = "the dog was happy so he", 12
ATOL = 1e-5
Folders = Callable[[str], Path]


def eager(folder: Path) -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def loaded(folder: Path) -> PretrainedGenerator:
    model = load(folder)
    assert isinstance(model, PretrainedGenerator)
    assert isinstance(model, PretrainedModel)
    return model


def greedy(model: Any, tokens: Sequence[int], count: int) -> list[int]:
    """The tokens that follow, each from a forward pass over the whole text."""
    read = [*tokens]
    with torch.no_grad():
        for _ in range(count):
            read.append(int(model(input_ids=torch.tensor([read])).logits[0, -1].argmax()))
    return read[len(tokens) :]


def test_it_continues_a_text_as_eager_code_does(causal: Any) -> None:
    generator, plain = loaded(causal.folder), eager(causal.folder)
    if causal.name != "openai":
        assert generator.model.config._attn_implementation == "attent"
    prompt = [*generator.start, *generator.encode(TEXT)]
    expected = greedy(plain, prompt, COUNT)
    generated = generator.generate(TEXT, GenerationSettings(max_new_tokens=COUNT))
    assert isinstance(generated, GeneratedText)
    assert [*generated.tokens] == expected
    assert generated.text == TEXT + generated.continuation
    assert "".join(generator.stream(TEXT, GenerationSettings(max_new_tokens=COUNT))) == generated.continuation
    with torch.no_grad():
        log_probs = plain(input_ids=torch.tensor([[*prompt, *expected]])).logits[0].log_softmax(-1)
    total = sum(float(log_probs[len(prompt) - 1 + step, token]) for step, token in enumerate(expected))
    assert generated.log_probability == pytest.approx(total, abs=1e-3)


def test_every_head_is_shown_as_eager_code_computes_it(causal: Any) -> None:
    generator, plain = loaded(causal.folder), eager(causal.folder)
    scene = generator.continued_scene(TEXT, 6)
    tokens = [*generator.start, *generator.encode(TEXT)]
    tokens += greedy(plain, tokens, 6)
    with torch.no_grad():
        expected = plain(input_ids=torch.tensor([tokens]), output_attentions=True).attentions
    (group,) = scene.groups
    assert len(group.layers) == 3
    entropies: list[Tensor] = []
    for layer, weights in zip(group.layers, expected, strict=True):
        # what a sink takes is no key's
        weights = weights[0, ..., : len(tokens)]
        torch.testing.assert_close(layer.rows(torch.arange(len(tokens))), weights, atol=ATOL, rtol=0.0)
        entropies.append(torch.special.entr(weights[:, 1:]).sum(-1) / torch.arange(2, len(tokens) + 1).log())
    assert torch.stack(entropies).mean() < 0.5
    assert generator.map(TEXT)[next(iter(generator.map(TEXT)))].rows == generator.labels(tokens[:-6])


def test_a_replaced_token_and_a_switched_head_equal_hooks_on_eager_code(causal: Any) -> None:
    generator, plain = loaded(causal.folder), eager(causal.folder)
    if causal.name == "openai":
        pytest.skip("OpenAI GPT computes its attention itself, where no head can be changed")
    prompt = [*generator.start, *generator.encode(TEXT)]
    first, second, *_ = greedy(plain, prompt, 2)
    other = 3 if second != 3 else 4
    generation = StepwiseGeneration(generator, TEXT, [first, other], max_new_tokens=8)
    rows = [last_rows(generation) for _ in generation]
    assert generation.tokens == [first, other, *greedy(plain, [*prompt, first, other], 6)]
    layers, tokens = maps_of(generator, [*prompt, *generation.tokens]), len(prompt)
    for step, step_rows in enumerate(rows):
        for row, weights in zip(step_rows, layers, strict=True):
            width = row.shape[-1]
            expected = weights[0, :, tokens + step, : tokens + step + 1][:, -width:]
            torch.testing.assert_close(row, expected, atol=ATOL, rtol=0.0)
    path, head = list(generator.map(TEXT))[1], 4
    with intervene(generator.model, {path: {head: "zero"}}):
        changed = generator.generate(TEXT, GenerationSettings(max_new_tokens=6))
        logits = generator.reader()(prompt)
    projection = plain.get_submodule(f"{path}.{causal.projection}")

    def without_head(module: Any, arguments: tuple[Tensor]) -> tuple[Tensor]:
        context = arguments[0].clone()
        width = context.shape[-1] // 6
        context[..., head * width : (head + 1) * width] = 0.0
        return (context,)

    with torch.no_grad():
        before = plain(input_ids=torch.tensor([prompt])).logits[0, -1]
        projection.register_forward_pre_hook(without_head)
        expected = plain(input_ids=torch.tensor([prompt])).logits[0, -1]
    assert (before - expected).abs().max() > 1e-3
    torch.testing.assert_close(logits, expected, atol=ATOL * max(1.0, float(expected.abs().max())), rtol=0.0)
    assert isinstance(changed, GeneratedText)
    assert [*changed.tokens] == greedy(plain, prompt, 6)


def last_rows(generation: StepwiseGeneration) -> list[Tensor]:
    maps = [getattr(weights, "weights", weights) for weights in generation.last_maps().values()]
    return [weights[0, :, -1] for weights in maps]


def maps_of(generator: PretrainedGenerator, tokens: list[int]) -> list[Tensor]:
    without_start = tokens[len(generator.start) :]
    return [labelled.weights.dense() for labelled in generator.map_of_tokens(without_start).values()]


def test_samples_depend_on_the_seed_alone(causal_folder: Folders) -> None:
    generator = loaded(causal_folder("llama"))
    settings = GenerationSettings(sample=True, seed=3, copies=3, max_new_tokens=8)
    drawn = generator.generate(["the dog", TEXT], settings)
    assert [text.tokens for text in generator.generate([TEXT], settings)] == [text.tokens for text in drawn[3:]]
    assert len({text.tokens for text in drawn}) > 3
    generator.model.generation_config.eos_token_id = drawn[0].tokens[2]
    ended = loaded(causal_folder("llama"))
    ended._ends = frozenset([drawn[0].tokens[2]])
    assert ended.generate(["the dog"], settings)[0].tokens == drawn[0].tokens[:3]


def test_gradients_of_a_short_text_are_those_of_its_log_probability(causal_folder: Folders) -> None:
    generator, plain = loaded(causal_folder("qwen3")), eager(causal_folder("qwen3"))
    tokens = [*generator.start, *generator.encode(TEXT)]
    outputs = plain(input_ids=torch.tensor([tokens]), output_attentions=True)
    log_probs = outputs.logits[0, :-1].log_softmax(-1)
    total = log_probs[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].sum()
    gradients = torch.autograd.grad(total, outputs.attentions)
    shown = generator.map_of_tokens(tokens[1:], gradients=True).values()
    for labelled, weights, gradient in zip(shown, outputs.attentions, gradients, strict=True):
        assert labelled.gradients is not None
        torch.testing.assert_close(labelled.gradients.dense(), weights * gradient, atol=1e-4, rtol=1e-4)


def test_only_the_last_logits_are_computed(causal_folder: Folders) -> None:
    generator = loaded(causal_folder("llama"))
    lengths: list[int] = []
    generator.model.lm_head.register_forward_hook(lambda module, inputs, output: lengths.append(output.shape[1]))
    generator.continued_scene(TEXT, 3)
    assert lengths == [1] * 4


def test_what_cannot_be_read_is_refused(causal_folder: Folders) -> None:
    generator = loaded(causal_folder("llama"))
    with pytest.raises(DataError, match="the text has 81 tokens, more than the 64 that this model can read"):
        generator.generate("dog " * 80)
    with pytest.raises(DataError, match="the text has 81 tokens"):
        generator.map("dog " * 80)
    assert len(generator.generate("dog " * 62).tokens) == 2
    assert generator.continued_scene("dog " * 62, 9).groups[0].shape == (6, 64, 64)
    generation = StepwiseGeneration(generator, "dog " * 62)
    assert len([*generation]) == 2
    assert [labelled.weights.shape[-1] for labelled in generation.map().values()] == [64] * 3
    with pytest.raises(ArgumentError, match=r"a prefix must consist of token ids from 0 to \d+, got 999"):
        StepwiseGeneration(generator, TEXT, [999])
    with pytest.raises(ArgumentError, match="does not predict masked words"):
        generator.fill("the _____")
    with pytest.raises(ArgumentError, match="float32 or bfloat16, got dtype int8"):
        load(causal_folder("llama"), dtype="int8")
    half = load(causal_folder("llama"), dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    generator.start = ()
    assert generator.encode("") == [0]
    generator.tokenizer.bos_token = None
    with pytest.raises(DataError, match="the text is empty, and this model's tokenizer puts no token before a text"):
        generator.generate("")
    assert math.isfinite(generator.generate(TEXT).log_probability)

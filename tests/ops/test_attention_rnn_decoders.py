from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.models import rnn_decoder
from attent.models.model import Memory
from attent.models.rnn import RNN
from attent.models.rnn_decoder import DECODERS, AttendingDecoder
from attent.models.settings import RnnSettings
from attent.ops import attention_rnn, native

pytestmark = pytest.mark.needs_native
LENGTHS = torch.tensor([4, 11, 1, 9, 7])


ADDITIVE: dict[str, Any] = {"attention": "bahdanau", "attention_hidden": 21}
LUONG: dict[str, Any] = {"attention": "luong"}
VARIANTS = [
    ADDITIVE,
    ADDITIVE | {"decoder_layers": 3},
    ADDITIVE | {"cell": "lstm"},
    {"attention": "bahdanau", "score": "general", "cell": "lstm", "decoder_layers": 2, "layer_norm": True},
    ADDITIVE | {"token_in_query": True, "decoder_layers": 2},
    {"attention": "bahdanau", "score": "general", "token_in_query": True},
    LUONG,
    LUONG | {"scaled_score": True},
    LUONG | {"score": "additive", "attention_hidden": 5, "decoder_layers": 2},
    LUONG | {"cell": "lstm", "decoder_layers": 2},
]
combined = pytest.mark.parametrize(
    "kind", [ADDITIVE, ADDITIVE | {"token_in_query": True}, LUONG], ids=["bahdanau", "asked", "luong"]
)


def decoder_of(variant: dict[str, Any]) -> AttendingDecoder:
    decoder = DECODERS[variant["attention"]](
        RnnSettings.model_validate({"embedding_width": 3, "width": 10, "encoder_width": 9} | variant)
    )
    assert isinstance(decoder, AttendingDecoder)
    return decoder


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).norm() / exact.norm()).item()


def learnt(
    decoder: AttendingDecoder,
    memory: Tensor,
    embedded: Tensor,
    upstream: Tensor,
    lengths: Tensor = LENGTHS,
    half: bool = False,
) -> list[Tensor]:
    """The output over a whole target, and the gradients of everything."""
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        result = decoder.teacher_forced(embedded, Memory(memory, lengths))
    return [result, *torch.autograd.grad(result, [memory, embedded, *decoder.parameters()], upstream.to(result.dtype))]


def of_random_numbers() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(5, 11, 18, requires_grad=True), torch.randn(5, 6, 3, requires_grad=True), torch.randn(5, 6, 3)


def exactly(
    decoder: AttendingDecoder, memory: Tensor, embedded: Tensor, upstream: Tensor, lengths: Tensor = LENGTHS
) -> list[Tensor]:
    """The same by the formula in float64."""
    memory, embedded = (tensor.detach().double().requires_grad_() for tensor in (memory, embedded))
    return learnt(copy.deepcopy(decoder).double(), memory, embedded, upstream, lengths)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(
    ("variant", "half"), [*((variant, False) for variant in VARIANTS), *((variant, True) for variant in VARIANTS[::3])]
)
def test_agrees_with_the_formula(variant: dict[str, Any], half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    decoder, inputs = decoder_of(variant), of_random_numbers()
    for parameter in decoder.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    exact = exactly(decoder, *inputs)
    actual = learnt(decoder, *inputs, half=half)
    monkeypatch.setattr(attention_rnn, "can_run_native", lambda *tensors, **options: False)
    plain = learnt(decoder, *inputs, half=half)
    for result, baseline, right in zip(actual, plain, exact, strict=True):
        assert error(result, right) < max(3 * error(baseline, right), 0.05 if half else 5e-6)


@pytest.mark.parametrize(("attention", "half"), [("bahdanau", False), ("luong", False), ("luong", True)])
def test_a_whole_model_learns_the_same_with_dropout_and_without_the_extension(
    attention: str, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropout = {"embedding_dropout": 0.2, "context_dropout": 0.3, "output_dropout": 0.1}
    sizes = {"embedding_width": 8, "width": 10, "encoder_layers": 2}
    model = RNN(RnnSettings.model_validate({"attention": attention} | sizes | dropout), 13, 11)
    source, tokens, upstream = torch.randint(4, 13, (5, 11)), torch.randint(2, 11, (5, 6)), torch.randn(5, 6, 8)
    parameters = [parameter for name, parameter in model.named_parameters() if not name.startswith("to_logits")]

    def gradients() -> list[Tensor]:
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            features = model.decode(model.encode(source, LENGTHS), tokens)
        return [features, *torch.autograd.grad(features, parameters, upstream.to(features.dtype))]

    actual = gradients()
    monkeypatch.setattr(native, "library", lambda: None)
    for first, second in zip(actual, gradients(), strict=True):
        assert error(first, second.double()) < (0.06 if half else 5e-6)


@combined
def test_a_row_depends_on_nothing_but_itself(kind: dict[str, Any]) -> None:
    decoder, (memory, embedded, expected) = decoder_of(kind), of_random_numbers()
    whole = learnt(decoder, memory, embedded, expected)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = slice(row, row + 1)
        sample = (part.detach().requires_grad_() for part in (memory[alone, :length], embedded[alone]))
        single = learnt(decoder, *sample, expected[alone], LENGTHS[alone])
        rights = (whole[0][row], whole[1][row, :length], whole[2][row])
        for actual, right in zip(single[:3], rights, strict=True):
            assert error(actual[0], right.double()) < 5e-6
        assert not whole[1][row, length:].any()


@combined
def test_a_source_without_tokens_gives_nothing_and_takes_no_gradient(kind: dict[str, Any]) -> None:
    decoder, inputs = decoder_of(kind), of_random_numbers()
    lengths = torch.tensor([4, 0, 1, 9, 7])
    actual = learnt(decoder, *inputs, lengths)
    assert all(item.isfinite().all() for item in actual)
    for result, right in zip(actual, exactly(decoder, *inputs, lengths), strict=True):
        assert error(result, right) < 5e-6


@combined
def test_only_what_is_needed_gets_gradients(kind: dict[str, Any]) -> None:
    decoder, (memory, embedded, expected) = decoder_of(kind), of_random_numbers()
    for parameter in decoder.recurrent.parameters():
        parameter.requires_grad_(False)
    output = decoder.teacher_forced(embedded.detach(), Memory(memory.detach(), LENGTHS))
    score = decoder.cross_attention.score
    gradients = torch.autograd.grad(output, list(score.parameters()), expected)
    exact = copy.deepcopy(decoder).double()
    output = exact.teacher_forced(embedded.detach().double(), Memory(memory.detach().double(), LENGTHS))
    right = torch.autograd.grad(output, list(exact.cross_attention.score.parameters()), expected.double())
    for actual, item in zip(gradients, right, strict=True):
        assert error(actual, item) < 5e-6


@pytest.mark.parametrize(
    "variant",
    [
        ADDITIVE | {"score": "concat"},
        ADDITIVE | {"normalizer": "sparsemax"},
        LUONG | {"layer_norm": True},
        LUONG | {"input_feeding": False},
    ],
)
def test_other_parts_are_left_to_the_steps(variant: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnn_decoder, "bahdanau", None)
    monkeypatch.setattr(rnn_decoder, "luong", None)
    learnt(decoder_of(variant), *of_random_numbers())


def test_whoever_watches_sees_the_steps() -> None:
    model = RNN(RnnSettings(embedding_width=8, width=10), 13, 11).train()
    source, tokens = torch.randint(4, 13, (5, 11)), torch.randint(2, 11, (5, 6))
    with watch(model) as captured:
        watched = model.decode(model.encode(source, LENGTHS), tokens)
    assert captured["decoder.cross_attention"].shape == (5, 1, 6, 11)
    torch.testing.assert_close(model.decode(model.encode(source, LENGTHS), tokens), watched)

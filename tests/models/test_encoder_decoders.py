"""What every encoder-decoder keeps to, and what Transformers and RNNs do each."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from attent.attention.cache import KeyValueCache
from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, ShapeError, UnknownNameError
from attent.models.build import build
from attent.models.settings import SETTINGS

SMALL = {
    "transformer": {
        "encoder_layers": 2, "decoder_layers": 2, "width": 8, "feed_forward": 11, "heads": 4, "maximum_length": 17
    },
    "rnn": {"embedding_width": 6, "width": 10},
}  # fmt: skip
# Pairwise: every position kind, each norm, whole and grouped heads, each way of sharing embeddings.
TRANSFORMERS: list[dict[str, Any]] = [
    {"position": "sinusoidal", "norm": "pre", "key_value_heads": 2, "output_bias": True, "share_embeddings": "none"},
    {"position": "learned", "norm": "post", "key_value_heads": 1, "activation": "gelu"},
    {"position": "rotary", "norm": "post", "key_value_heads": 2},
    {"position": "rotary", "norm": "pre", "share_embeddings": "target"},
    {"position": "alibi", "norm": "pre", "key_value_heads": 2},
    {"position": "relative_bias", "norm": "post"},
    {"position": "none", "norm": "pre", "normalizer": "sparsemax", "score": "cosine"},
    {"position": "sinusoidal", "score": "additive", "key_value_heads": 2},
    {"self_attention": "ssru", "norm": "post"},
    {"self_attention": "ssru", "norm": "pre", "position": "rotary"},
]
# Every kind with every cell; the rest pairwise.
RNNS: list[dict[str, Any]] = [
    {"attention": "none", "cell": "lstm", "decoder_layers": 2, "share_embeddings": "none"},
    {"attention": "none", "cell": "gru", "context_every_step": False, "layer_norm": True},
    {"attention": "bahdanau", "cell": "gru", "score": "gated", "layer_norm": True, "encoder_layers": 2},
    {"attention": "bahdanau", "cell": "lstm", "decoder_layers": 2, "encoder_layers": 2, "encoder_width": 7},
    {"attention": "bahdanau", "cell": "gru", "token_in_query": True, "score": "cosine"},
    {"attention": "luong", "cell": "lstm", "score": "concat", "attention_hidden": 3, "decoder_layers": 2},
    {"attention": "luong", "cell": "gru", "score": "dot", "input_feeding": False, "decoder_layers": 2},
    {"attention": "luong", "cell": "lstm", "score": "general", "input_feeding": False, "encoder_width": 7},
    {"attention": "luong", "cell": "gru", "scaled_score": True},
    {"attention": "luong", "cell": "gru", "score": "location"},
    {"attention": "luong", "cell": "gru", "local": "m", "local_window": 2},
    {"attention": "luong", "cell": "lstm", "local": "p", "local_window": 3, "decoder_layers": 2},
    {"attention": "luong", "cell": "gru", "local": "p", "local_window": 1, "input_feeding": False},
    {"attention": "luong", "cell": "gru", "score": "gaussian", "normalizer": "sparsemax", "share_embeddings": "none"},
    {"attention": "none", "cell": "gru", "sentences": "vectors", "sentence_ends": (5, 9)},
    {"attention": "bahdanau", "cell": "lstm", "sentences": "vectors", "sentence_ends": (5, 9), "encoder_layers": 2},
    {"attention": "bahdanau", "cell": "gru", "sentences": "words", "sentence_ends": (5, 9)},
    {"attention": "luong", "cell": "gru", "sentences": "words", "sentence_ends": (5, 9), "layer_norm": True},
]
every_variant = pytest.mark.parametrize(
    "variant", TRANSFORMERS + RNNS, ids=lambda each: "-".join(map(str, each.values()))
)


def make(variant: dict[str, Any], source_size: int = 13, target_size: int = 11) -> Any:
    kind = "rnn" if "attention" in variant else variant.get("kind", "transformer")
    return build(SETTINGS[kind].model_validate(SMALL[kind] | variant), source_size, target_size).eval()


def some_source() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(4, 13, (3, 7)), torch.tensor([7, 2, 5])


def some_target() -> torch.Tensor:
    return torch.randint(2, 11, (3, 5))


@every_variant
@torch.no_grad()
def test_all_steps_at_once_equal_one_step_after_another(variant: dict[str, Any]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), some_target()
    memory = model.encode(source, lengths)
    whole = model.decode(memory, tokens)
    state, steps = model.start(memory), []
    for token in tokens.unbind(1):
        features, state = model.step(state, token)
        steps.append(features)
    assert whole.shape[:2] == (3, 5)
    torch.testing.assert_close(torch.stack(steps, 1), whole)
    assert model.output(whole).shape == (3, 5, 11)


@every_variant
@torch.no_grad()
def test_neighbours_and_padding_do_not_matter(variant: dict[str, Any]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), some_target()
    whole = model.decode(model.encode(source, lengths), tokens)
    for row, length in enumerate(lengths.tolist()):
        memory = model.encode(source[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(model.decode(memory, tokens[row : row + 1])[0], whole[row])


@every_variant
@torch.no_grad()
def test_a_state_is_a_value_whose_rows_are_selected_and_reordered(variant: dict[str, Any]) -> None:
    model, (source, lengths), rows = make(variant), some_source(), torch.tensor([2, 0, 2])
    start = model.start(model.encode(source, lengths))
    _, state = model.step(start, torch.tensor([2, 2, 2]))
    features, _ = model.step(state, torch.tensor([5, 6, 7]))
    chosen, _ = model.step(state.select(rows), torch.tensor([7, 5, 7]))
    torch.testing.assert_close(chosen, features[rows])
    # to step from a state again is to take the same step
    _, repeated = model.step(start.select(torch.arange(3)), torch.tensor([2, 2, 2]))
    torch.testing.assert_close(model.step(repeated, torch.tensor([5, 6, 7]))[0], features)
    # rows of the same source change places without it
    _, state = model.step(start.select(torch.tensor([0, 0, 2, 2])), torch.tensor([2, 3, 4, 5]))
    rows, tokens = torch.tensor([1, 0, 3, 3]), torch.tensor([7, 5, 7, 6])
    moved = state.reorder(rows)
    assert moved.source is state.source
    assert torch.equal(model.step(moved, tokens)[0], model.step(state.select(rows), tokens)[0])
    assert not torch.allclose(model.step(moved, tokens)[0], model.step(state, tokens)[0])


@every_variant
def test_every_parameter_learns_also_in_mixed_precision(variant: dict[str, Any]) -> None:
    model, (source, lengths) = make(variant).train(), some_source()
    for dtype in (torch.float32, torch.bfloat16):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model.output(model.decode(model.encode(source, lengths), some_target()))
        F.cross_entropy(logits.float().flatten(0, 1), some_target().flatten()).backward()
        weights = dict(model.named_parameters())
        assert [name for name, weight in weights.items() if weight.grad is None] == []
        assert all(weight.grad.isfinite().all() for weight in weights.values())
        # the bias of the keys adds the same to all scores of a query
        if dtype == torch.float32:
            assert all("key_projection.bias" in name for name, weight in weights.items() if not weight.grad.any())


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_what_does_not_fit_is_refused(kind: str) -> None:
    with pytest.raises(ArgumentError, match="needs one vocabulary, got 13 source and 11 target"):
        make({"kind": kind, "share_embeddings": "all"})
    with pytest.raises(ShapeError, match=r"lengths \(B,\), got \(3, 7\) and \(2,\)"):
        make({"kind": kind}).encode(torch.ones(3, 7, dtype=torch.long), torch.tensor([7, 2]))
    with pytest.raises(ShapeError, match="one width, got Dq = 10 and Dk = 14"):
        make({"attention": "luong", "score": "dot", "encoder_width": 7})
    with pytest.raises(ArgumentError, match="got score 'dot'"):
        make({"attention": "bahdanau", "score": "dot", "attention_hidden": 7})
    with pytest.raises(UnknownNameError, match="did you mean 'additive'"):
        make({"attention": "bahdanau", "score": "adittive"})


@pytest.mark.parametrize("variant", TRANSFORMERS[::2])
@torch.no_grad()
def test_the_attention_of_a_layer_is_that_of_decode(variant: dict[str, object]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), some_target()
    memory = model.encode(source, lengths)
    with watch(model) as maps:
        model.decode(memory, tokens)
    assert model.source_attention_layers == 2
    expected = {
        f"decoder.layers.{layer}.{side}_attention": (5, length)
        for layer in range(2)
        for side, length in (("self", 5), ("cross", 7))
        if side == "cross" or variant.get("self_attention") != "ssru"
    }
    assert [(name, weights.shape[2:]) for name, weights in maps.items()] == [*expected.items()]
    for layer in range(2):
        weights = model.source_attention(memory, tokens, layer).dense()
        assert torch.equal(weights, maps[f"decoder.layers.{layer}.cross_attention"].dense())


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("attention", ["none", "bahdanau", "luong"])
@torch.no_grad()
def test_a_translation_does_not_change_by_a_bit_with_its_neighbours(attention: str, cell: str) -> None:
    model, source = make({"attention": attention, "cell": cell, "width": 32}), torch.randint(4, 13, (8, 16))

    def first_row(lengths: list[int]) -> torch.Tensor:
        state, tokens, logits = model.start(model.encode(source, torch.tensor(lengths))), torch.full((8,), 2), []
        for _ in range(5):
            features, state = model.step(state, tokens)
            logits.append(model.output(features))
            tokens = logits[-1].argmax(-1)
        return torch.stack(logits)[:, 0]

    assert torch.equal(first_row([9, 1, 2, 3, 2, 1, 4, 5]), first_row([9, 16, 15, 16, 16, 16, 13, 12]))


@pytest.mark.parametrize("variant", [rnn for rnn in RNNS if rnn["attention"] != "none"])
@torch.no_grad()
def test_one_map_a_call_whose_row_is_about_the_token_that_the_step_emits(variant: dict[str, object]) -> None:
    model, (source, lengths), tokens = make(variant), some_source(), some_target()
    memory = model.encode(source, lengths)
    with watch(model) as captured:
        model.decode(memory, tokens)
    assert list(captured) == ["decoder.cross_attention"]
    weights = captured["decoder.cross_attention"].dense()
    assert weights.shape == (3, 1, 5, 7)
    # a window beyond the source's end holds nothing, and a bell takes some away
    if "local" not in variant:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5))
    assert not weights[1, :, :, 2:].any()
    state = model.start(memory)
    for step, token in enumerate(tokens.unbind(1)):
        with watch(model) as captured:
            _, state = model.step(state, token)
        torch.testing.assert_close(captured["decoder.cross_attention"].dense(), weights[:, :, step : step + 1])


@pytest.mark.parametrize(
    ("settings", "moved"),
    [({}, [2, 3, 4]), ({"token_in_query": True}, [1, 2, 3, 4]), ({"attention": "luong"}, [1, 2, 3, 4])],
)
@torch.no_grad()
def test_bahdanau_looks_before_it_reads_the_token_and_luong_behind(settings: dict[str, Any], moved: list[int]) -> None:
    settings = {"attention": "bahdanau"} | settings
    model, (source, lengths), tokens = make(settings), some_source(), some_target()
    memory, second = model.encode(source, lengths), tokens.clone()
    second[:, 1] = tokens[:, 1] % 9 + 2
    with watch(model) as captured:
        model.decode(memory, tokens)
        model.decode(memory, second)
    first, second_item = (weights.dense()[2, 0] for weights in captured.values())
    assert [step for step in range(5) if not torch.equal(first[step], second_item[step])] == moved


@torch.no_grad()
def test_keys_are_lowered_once_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, lengths) = make({"attention": "bahdanau"}), some_source()
    score, calls = model.decoder.cross_attention.score, []
    lower = score.lower_key
    monkeypatch.setattr(score, "lower_key", lambda *tensors: calls.append(1) or lower(*tensors))
    state = model.start(model.encode(source, lengths))
    for _ in range(3):
        _, state = model.step(state, torch.tensor([2, 3, 4]))
    model.decode(model.encode(source, lengths), some_target())
    assert len(calls) == 2
    assert isinstance(state.source, KeyValueCache)


@torch.no_grad()
def test_dropout_acts_in_training_alone() -> None:
    model, (source, lengths), tokens = make({"attention": "bahdanau", "preset": "lium"}), some_source(), some_target()

    def features() -> torch.Tensor:
        return model.decode(model.encode(source, lengths), tokens)

    assert torch.equal(features(), features())
    model.train()
    assert not torch.equal(features(), features())

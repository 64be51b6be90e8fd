from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attent.attention import attend
from attent.attention.capture.watch import watch
from attent.errors import ImplementationError
from attent.integrations import transformers as module

STATIC = {"cache_implementation": "static", "disable_compile": True}


@pytest.fixture(autouse=True)
def registered() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    module.register()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "marian", "vit", "gemma2"])
def test_outputs_are_those_of_eager_attention_where_there_is_no_padding(models: Any, name: str) -> None:
    model, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    with torch.no_grad(), watch(model) as captured:
        actual, expected = model(**inputs)[0], eager(**inputs)[0]
    real = inputs.get("attention_mask", torch.ones(actual.shape[:2]))
    if actual.shape[1] == real.shape[1]:
        actual, expected = actual[real.bool()], expected[real.bool()]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert len(captured) >= 2


@pytest.mark.parametrize(
    ("name", "more"),
    [("gpt2", {}), ("llama", STATIC), ("gemma2", {}), ("gemma2", STATIC), ("marian", {}), ("t5", STATIC)],
)
def test_it_generates_what_eager_attention_does(models: Any, name: str, more: dict[str, Any]) -> None:
    model, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    inputs.pop("decoder_input_ids", None)
    steps = {"max_new_tokens": 6, "do_sample": False, **more}
    assert torch.equal(model.generate(**inputs, **steps), eager.generate(**inputs, **steps))


def test_it_trains_with_dropout(models: Any) -> None:
    model, inputs = models.bert("attent")
    model.train()
    first, second = model(**inputs)[0], model(**inputs)[0]
    assert not torch.equal(first, second)
    first.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def weights_of(outputs: Any) -> dict[str, tuple[Tensor, ...]]:
    """The weights of each kind of attention in the outputs of a model or of `generate`, of all layers and steps."""
    kinds = {kind: value for kind, value in outputs.items() if "attentions" in kind and value}
    return {kind: tuple(tree_leaves(value)) for kind, value in kinds.items()}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "marian", "t5", "vit"])
def test_weights_are_those_of_eager_attention(models: Any, name: str) -> None:
    result, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    with torch.no_grad():
        actual, expected = (weights_of(model(**inputs, output_attentions=True)) for model in (result, eager))
    assert actual.keys() == expected.keys() != set()
    is_decoder = name in ("gpt2", "llama", "gemma2")
    padding = inputs["attention_mask"] == 0 if is_decoder else torch.zeros(2, 1, dtype=torch.bool)
    for kind, layers in actual.items():
        assert [weights.shape for weights in layers] == [weights.shape for weights in expected[kind]]
        difference = (torch.stack(layers) - torch.stack(expected[kind])).abs().amax((0, 2, 4))
        assert difference.masked_fill(padding, 0).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "more"), [("gpt2", {}), ("llama", STATIC), ("marian", {"num_beams": 3}), ("t5", STATIC), ("t5", {})]
)
def test_generate_returns_the_weights_of_every_step(models: Any, name: str, more: dict[str, Any]) -> None:
    model, inputs = getattr(models, name)("attent")
    eager, _ = getattr(models, name)("eager")
    inputs = {"input_ids": inputs["input_ids"], "attention_mask": torch.ones_like(inputs["input_ids"])}
    steps = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, **more}
    steps |= {"output_attentions": True, "return_dict_in_generate": True}
    actual = weights_of(model.generate(**inputs, **steps))
    expected = weights_of(eager.generate(**inputs, **steps))
    assert actual.keys() == expected.keys() != set()
    for kind, weights in actual.items():
        torch.testing.assert_close(weights, expected[kind], atol=1e-5, rtol=1e-5)


def test_gradients_flow_through_weights(models: Any) -> None:
    gradients: list[Tensor] = []
    for implementation in ("attent", "eager"):
        model, inputs = models.bert(implementation)
        outputs = model(**inputs, output_attentions=True)
        (outputs.last_hidden_state.square().sum() + torch.stack(outputs.attentions).square().sum()).backward()
        gradients.append(model.encoder.layer[0].attention.self.query.weight.grad)
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_weights_that_nobody_asks_for_are_not_made(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = models.gpt2("attent")
    monkeypatch.setattr(module, "AttentionMap", None)
    assert model(**inputs).attentions is None
    assert model.generate(**inputs, max_new_tokens=2, return_dict_in_generate=True).attentions is None


def test_weights_of_unwritten_keys_are_zero() -> None:
    query, cache = torch.randn(1, 2, 3, 4), torch.zeros(1, 2, 9, 4)
    cache[:, :, :3] = torch.randn(1, 2, 3, 4)
    expected = (query @ cache[:, :, :3].mT / 2).masked_fill(torch.ones(3, 3).triu(1).bool(), -torch.inf).softmax(-1)
    _, weights = module.attention(nn.Module(), query, cache, cache, None, output_attentions=True)
    assert weights is not None
    assert weights.shape == (1, 2, 3, 9)
    torch.testing.assert_close(weights[..., :3], expected)
    assert not weights[..., 3:].any()


def test_position_bias_and_causality_together() -> None:
    query, key, value = (torch.randn(2, 3, length, 4) for length in (5, 7, 7))
    attention, bias = nn.Module(), torch.randn(1, 3, 5, 7)
    context, empty = module.attention(
        attention, query, key, value, None, scaling=0.3, is_causal=True, position_bias=bias
    )
    scores = query @ key[:, :, :5].mT * 0.3 + bias[..., :5]
    weights = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(context, (weights @ value[:, :, :5]).transpose(1, 2))
    assert empty is None
    masked, _ = module.attention(attention, query, key, value, bias, position_bias=bias)
    torch.testing.assert_close(masked.transpose(1, 2), (query @ key.mT / 2 + 2 * bias).softmax(-1) @ value)


def test_sinks_take_a_share_of_the_weights() -> None:
    query = torch.randn(1, 2, 3, 4)
    context, _ = module.attention(nn.Module(), query, query, query, torch.zeros(1, 1, 3, 3), s_aux=torch.ones(2))
    scores = query @ query.mT / 2
    weights = scores.exp() / (scores.exp().sum(-1, keepdim=True) + torch.tensor(1.0).exp())
    torch.testing.assert_close(context, (weights @ query).transpose(1, 2))


@pytest.mark.parametrize("window", [None, 2])
def test_packed_batches_are_read_from_their_boundaries(window: int | None) -> None:
    query, starts = torch.randn(1, 2, 7, 4), torch.tensor([0, 4, 4, 7], dtype=torch.int32)
    attention = nn.Module()
    attention.is_causal = True
    options = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "sliding_window": window}
    # models pass a table too, which is not read
    table = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    context, _ = module.attention(attention, query, query, query, table, **options)
    distance = torch.arange(7)[:, None] - torch.arange(7)
    sequence = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    allowed = (sequence[:, None] == sequence) & (distance >= 0) & (distance < (window or 7))
    expected = attend(query, query, query, mask=allowed)
    torch.testing.assert_close(context, expected.transpose(1, 2))


def test_what_we_do_not_have_is_refused() -> None:
    query = torch.randn(1, 2, 3, 4)
    with pytest.raises(ImplementationError, match=r"sinks \(sinks\)"):
        module.attention(nn.Module(), query, query, query, None, sinks=torch.zeros(2))
    with pytest.raises(ImplementationError, match="paged cache"):
        module.attention(nn.Module(), query, query, query, None, cache=object())
    for name in ("indices", "block_indices"):
        with pytest.raises(ImplementationError, match=rf"keys selected by an indexer \({name}\), which Module needs"):
            module.attention(nn.Module(), query, query, query, None, **{name: torch.zeros(1)})


def text_config(transformers: Any, name: str, **settings: Any) -> Any:
    return getattr(transformers, f"{name}Config")(
        vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=17, **settings
    )


class OwnAttention(nn.Module):
    """Attention that a model computes itself."""

    def forward(self, features: Tensor) -> Tensor:
        return (features @ features.mT).softmax(-1) @ features


OWN_ATTENTION_CLASSES = {"eager": OwnAttention}


@pytest.fixture
def own_model() -> Any:
    """A class of models that know no attention but their own, by the name "eager", as many of transformers did."""
    from transformers import BertConfig, PreTrainedModel

    class OwnModel(PreTrainedModel):
        config_class = BertConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
            self.attention = OWN_ATTENTION_CLASSES[config._attn_implementation]()
            self.post_init()

        def forward(self, input_ids: Tensor) -> Tensor:
            return self.attention(self.embedding(input_ids))

    return OwnModel


def test_a_model_that_computes_attention_itself_is_refused_with_the_reason(tmp_path: Path, own_model: Any) -> None:
    config = own_model.config_class(vocab_size=29, hidden_size=12)
    own_model(config).save_pretrained(tmp_path)
    config._attn_implementation = "attent"
    for build in (
        partial(own_model.from_pretrained, tmp_path, attn_implementation="attent"),
        partial(own_model, config),
    ):
        with pytest.raises(ImplementationError, match=r"^OwnModel .* itself \(OwnAttention\) .* load it with [^\n]*$"):
            build()
    assert own_model.from_pretrained(tmp_path).config._attn_implementation == "eager"


def test_a_configuration_changed_afterwards_leaves_a_model_right(own_model: Any) -> None:
    model = own_model(own_model.config_class(vocab_size=29, hidden_size=12)).eval()
    tokens = torch.randint(3, 29, (2, 7))
    with torch.no_grad():
        expected = model(tokens)
        model.config._attn_implementation = "attent"
        torch.testing.assert_close(model(tokens), expected)


def skip_if_dispatching(transformers: Any, name: str, *attention_classes: str) -> None:
    """Skip where this release's classes take their attention from the interface, as more do in each release."""
    module = inspect.getmodule(getattr(transformers, f"{name}Model"))
    for kind in attention_classes:
        if "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(getattr(module, kind)):
            pytest.skip(f"{kind} of transformers {transformers.__version__} calls the attention interface")


def test_a_model_that_computes_part_of_it_warns_and_gets_float_masks() -> None:
    import transformers

    skip_if_dispatching(transformers, "LongT5", "LongT5LocalAttention", "LongT5TransientGlobalAttention")
    config = transformers.LongT5Config(
        vocab_size=29, d_model=12, d_kv=4, d_ff=17, num_layers=1, num_heads=3, local_radius=3
    )
    eager = transformers.LongT5Model(config).eval()
    config._attn_implementation = "attent"
    with pytest.warns(
        UserWarning, match="that LongT5LocalAttention, LongT5TransientGlobalAttention computes by itself"
    ):
        model = transformers.LongT5Model(config).eval()
    model.load_state_dict(eager.state_dict())
    tokens, mask = torch.randint(3, 29, (2, 7)), (torch.arange(7) < torch.tensor([[7], [4]])).long()
    inputs = {"input_ids": tokens, "attention_mask": mask, "decoder_input_ids": tokens}
    config._attn_implementation = "eager"
    with torch.no_grad():
        expected = eager(**inputs)[0]
        config._attn_implementation = "attent"
        torch.testing.assert_close(model(**inputs)[0], expected, atol=1e-5, rtol=1e-5)


def test_a_part_of_a_larger_model_is_named() -> None:
    import transformers

    skip_if_dispatching(transformers, "Clap", "ClapAudioSelfAttention")
    text = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 17}
    audio = {
        "patch_embeds_hidden_size": 4, "depths": [1], "num_attention_heads": [2], "window_size": 2, "spec_size": 16,
        "patch_size": 4, "patch_stride": [4, 4], "num_mel_bins": 4, "hidden_size": 4,
    }  # fmt: skip
    config = transformers.ClapConfig(text_config={**text, "vocab_size": 29}, audio_config=audio)
    config._attn_implementation = {"text_config": "attent"}
    model = transformers.ClapModel(config)
    assert model.text_model.config._attn_implementation == "attent"
    config._attn_implementation = "attent"
    with (
        pytest.warns(UserWarning, match="by itself is unchanged"),
        pytest.raises(ImplementationError, match=r"ClapAudioModel .*ClapAudioSelfAttention"),
    ):
        transformers.ClapModel(config)


@pytest.mark.parametrize(("name", "dtype"), [("Gemma2", torch.bool), ("Splinter", torch.float32)])
def test_masks_are_boolean_where_the_model_can_take_them(name: str, dtype: torch.dtype) -> None:
    import transformers

    config = text_config(transformers, name, num_key_value_heads=3)
    config._attn_implementation = "attent"
    model = getattr(transformers, f"{name}Model")(config).eval()
    masks: list[Any] = []
    names = (f"{name}Attention", f"{name}SelfAttention")
    attending = next(item for item in model.modules() if type(item).__name__ in names)

    def keep_mask(_: nn.Module, args: Any, named: Any) -> None:
        masks.append(next(item for item in (*args, named.get("attention_mask")) if item is None or item.dim() == 4))

    attending.register_forward_pre_hook(keep_mask, with_kwargs=True)
    tokens, padding = torch.randint(3, 29, (2, 7)), (torch.arange(7) < torch.tensor([[7], [4]])).long()
    with torch.no_grad():
        model(tokens, attention_mask=padding)
        model(tokens)
    assert masks[0].dtype == dtype
    # nothing is hidden but the future, which needs no mask
    assert masks[1] is None or dtype == torch.float32


def test_a_version_in_which_nothing_can_be_refused_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.delattr(transformers.PreTrainedModel, "get_correct_attn_implementation")
    with pytest.raises(ImplementationError, match=f"transformers {transformers.__version__} has no "):
        module.register()

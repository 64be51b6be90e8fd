"""watch() on Hugging Face models as they come, held against their own eager attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.integrations.transformers import register

STEPS = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "marian", "vit"])
def test_maps_are_those_of_eager_attention_and_nothing_is_changed(models: Any, eager_weights: Any, name: str) -> None:
    model, inputs = getattr(models, name)()
    eager, _ = getattr(models, name)("eager")
    with torch.no_grad():
        plain = model(**inputs)
        with watch(model) as captured:
            watched = model(**inputs)
        expected = eager_weights(eager(**inputs, output_attentions=True))
    assert torch.equal(plain[0], watched[0])
    assert len(captured) == len(expected)
    assert model.config._attn_implementation == "sdpa"
    for weights, reference in zip(captured.values(), expected, strict=True):
        dense_weights = weights.dense()
        assert not dense_weights.requires_grad
        # a query of padding that may see nothing: zeros here, as PyTorch has it; eager attention has it look at
        # everything
        alive = dense_weights.sum(-1, keepdim=True) > 0
        torch.testing.assert_close(dense_weights, torch.where(alive, reference, 0.0), atol=2e-6, rtol=0.0)
        assert alive.sum() >= alive.numel() // 2


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gpt2", "greedy"), ("llama", "beams"), ("t5", "static"), ("marian", "greedy"), ("gpt2", "static"),
        ("t5", "beams"), ("marian", "beams"),
    ],
)  # fmt: skip
def test_steps_of_generate_are_joined(models: Any, name: str, method: str) -> None:
    model, inputs = getattr(models, name)()
    eager, _ = getattr(models, name)("eager")
    inputs.pop("decoder_input_ids", None)
    more = {
        "greedy": {},
        "static": {"cache_implementation": "static", "disable_compile": True},
        "beams": {"num_beams": 3},
    }[method]
    plain = model.generate(**inputs, **STEPS, **more)
    with watch(model) as captured:
        assert torch.equal(model.generate(**inputs, **STEPS, **more), plain)
    outputs = eager.generate(**inputs, **STEPS, **more, output_attentions=True, return_dict_in_generate=True)
    assert torch.equal(outputs.sequences, plain)
    steps = outputs.get("decoder_attentions") or outputs["attentions"]
    decoder = [path for path in captured if "#" not in path and "encoder." not in path.replace("decoder.", "")]
    of_self = [path for path in decoder if "encoder_attn" not in path and "EncDec" not in path]
    of_others = [path for path in decoder if path not in of_self]
    for kind, full in ((of_self, steps), (of_others, outputs.get("cross_attentions"))):
        for layer, path in enumerate(kind):
            joined, first = captured.concatenated(path), 0
            weights = joined.dense()
            for step in full:
                queries, keys = step[layer].shape[-2:]
                rows = weights[:, :, first : first + queries]
                alive = rows.sum(-1, keepdim=True) > 0
                torch.testing.assert_close(rows[..., :keys], torch.where(alive, step[layer], 0.0), atol=2e-6, rtol=0.0)
                assert not rows[..., keys:].any()
                first += queries
            assert first == joined.shape[2]
            assert torch.equal(joined.argmax(), weights.argmax(-1))


def test_eager_and_flex_attention_are_listed_with_what_to_do(models: Any) -> None:
    model, inputs = models.bert("eager")
    with watch(model) as captured:
        model(**inputs)
    assert len(captured) == 0
    assert str(captured).splitlines() == [
        "BertModel: nothing was seen",
        "  not seen: encoder.layer.0.attention.self and 1 more (BertSelfAttention): it runs Hugging Face's 'eager' "
        "attention: "
        'model.set_attn_implementation("sdpa") makes it visible',
    ]
    model.config._attn_implementation = "flex_attention"
    assert "FlexAttention keeps queries and keys inside its kernel" in str(captured)


def test_a_model_without_sdpa_is_seen_as_advised(models: Any) -> None:
    model, inputs = models.gemma2("eager")
    with watch(model) as captured:
        model(**inputs)
    advice = 'transformers.register(), model.set_attn_implementation("attent") makes it visible'
    assert str(captured).splitlines()[1].endswith(advice)
    with pytest.raises(ValueError, match="does not support"):
        model.set_attn_implementation("sdpa")
    register()
    model.set_attn_implementation("attent")
    with watch(model) as captured:
        model(**inputs)
    assert len(captured) == 2
    assert "not seen" not in str(captured)

"""attn_implementation="attent" and `watch` in every architecture of docs/hugging-face.md.

Its table is held against what they do.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.errors import ImplementationError
from attent.integrations.transformers import register

PAGE = Path(__file__).parents[2] / "docs" / "hugging-face.md"
TOLERANCE = 1e-5  # relative to the largest value
GENERATE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
}

WORDS = 29
TOKENS = 7
DECODED = 5
PIXELS, PATCH = 12, 4
SAMPLES = 800  # of a waveform

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {
    **SPECIAL, "vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 6, "max_position_embeddings": 67,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
# as in DeepSeek V3.2
ROUTED = {"moe_intermediate_size": 8, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4,
    "num_key_value_heads": 6,
}  # fmt: skip
INDEXER = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 2, "first_k_dense_replace": 1}
GPT = {**SPECIAL, "vocab_size": WORDS, "n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 67}
BART = {
    **SPECIAL, "vocab_size": WORDS, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 6, "decoder_attention_heads": 3, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17,
    "max_position_embeddings": 67, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "vocab_size": WORDS, "d_model": 24, "d_kv": 4, "d_ff": 17, "num_layers": 2, "num_heads": 6, "pad_token_id": 0,
    "eos_token_id": 2, "decoder_start_token_id": 0,
}  # fmt: skip
PICTURE = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 17, "image_size": PIXELS,
    "patch_size": PATCH,
}  # fmt: skip
SWIN = {"image_size": PIXELS, "patch_size": 2, "window_size": 3, "embed_dim": 6, "depths": [2, 2], "num_heads": [2, 3]}
SPEECH = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 17, "conv_dim": (8, 8),
    "conv_stride": (5, 4), "conv_kernel": (10, 4), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip
ENCODER, DECODER, SEQ2SEQ, VISION, AUDIO = "Model", "ForCausalLM", "ForConditionalGeneration", "vision", "audio"
BOTH = "both"


class Architecture(NamedTuple):
    """How a small model of one architecture is built.

    Args:
        name: as its classes begin, such as "Bert".
        kind: how its class ends, which tells its inputs.
        settings: of its configuration.
        config: how the class of its configuration begins, where that is not the name.
        ending: how its class ends, where that is not the kind.
    """

    name: str
    kind: str
    settings: dict[str, Any]
    config: str = ""
    ending: str = ""

    def configuration(self, transformers: Any) -> Any:
        """A configuration of its own, which a model may write to."""
        return getattr(transformers, f"{self.config or self.name}Config")(**self.settings)

    @property
    def model(self) -> str:
        """The name of its class."""
        plain = "Model" if self.kind in (VISION, AUDIO, BOTH) else self.kind
        return self.name + (self.ending or plain)

    def inputs(self, padding: int = 0) -> dict[str, Tensor]:
        """Two sequences, of which the second has so many tokens of padding; decoders are padded on the left."""
        if self.kind == VISION:
            return {"pixel_values": torch.randn(2, 3, PIXELS, PIXELS)}
        if self.kind == AUDIO:
            mask = torch.arange(SAMPLES) < torch.tensor([SAMPLES, SAMPLES - 100 * padding])[:, None]
            return {"input_values": torch.randn(2, SAMPLES), "attention_mask": mask.long()}
        if self.name == "Whisper":
            return {
                "input_features": torch.randn(2, 4, 2 * TOKENS),
                "decoder_input_ids": torch.randint(3, WORDS, (2, DECODED)),
            }
        mask = (torch.arange(TOKENS) < torch.tensor([TOKENS, TOKENS - padding])[:, None]).long()
        text = {
            "input_ids": torch.randint(3, WORDS, (2, TOKENS)),
            "attention_mask": mask.flip(1) if self.kind == DECODER else mask,
        }
        if self.kind == SEQ2SEQ:
            text["decoder_input_ids"] = torch.randint(3, WORDS, (2, DECODED))
        if self.kind == BOTH:
            text["pixel_values"] = torch.randn(2, 3, PIXELS, PIXELS)
        return text

    def build(self, transformers: Any, implementation: str) -> Any:
        """The model, always with the same weights, without dropout.

        As they come, such small models look at everything alike; so their matrices are made larger.
        """
        torch.manual_seed(0)
        config = self.configuration(transformers)
        config._attn_implementation = implementation
        model = getattr(transformers, self.model)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and "relative" not in name and 0 < parameter.std() < 0.1:
                    parameter.mul_(6)
        return model


# fmt: off
ARCHITECTURES = (
    # encoders
    Architecture("Albert", ENCODER, {**TEXT, "embedding_size": 12}),
    Architecture("Bert", ENCODER, TEXT),
    Architecture("BertGeneration", "Encoder", TEXT),
    Architecture("Camembert", ENCODER, TEXT),
    Architecture("DistilBert", ENCODER, {
        "vocab_size": WORDS, "dim": 24, "hidden_dim": 17, "n_layers": 2, "n_heads": 6,
    }),
    Architecture("Electra", ENCODER, {**TEXT, "embedding_size": 12}),
    Architecture("Ernie", ENCODER, TEXT),
    Architecture("Esm", ENCODER, {**TEXT, "mask_token_id": 3}),
    Architecture("LayoutLM", ENCODER, TEXT),
    Architecture("MobileBert", ENCODER, {
        **TEXT, "embedding_size": 12, "true_hidden_size": 24, "intra_bottleneck_size": 24,
    }),
    Architecture("ModernBert", ENCODER, {**TEXT, "local_attention": 4, "reference_compile": False}),
    Architecture("Roberta", ENCODER, TEXT),
    Architecture("XLMRoberta", ENCODER, TEXT),
    # encoders that compute their attention themselves
    Architecture("BigBird", ENCODER, {**TEXT, "attention_type": "original_full"}),
    Architecture("ConvBert", ENCODER, {**TEXT, "embedding_size": 12, "head_ratio": 2}),
    Architecture("Deberta", ENCODER, {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Architecture("DebertaV2", ENCODER, {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Architecture("Funnel", ENCODER, {
        "vocab_size": WORDS, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 24, "n_head": 6, "d_head": 4,
        "d_inner": 17,
    }),
    Architecture("Longformer", ENCODER, {**TEXT, "attention_window": 4}),
    Architecture("MPNet", ENCODER, TEXT),
    Architecture("Nystromformer", ENCODER, {**TEXT, "num_landmarks": 7, "segment_means_seq_len": 7}),
    Architecture("RoFormer", ENCODER, {**TEXT, "embedding_size": 24}),
    Architecture("XLNet", ENCODER, {"vocab_size": WORDS, "d_model": 24, "n_layer": 2, "n_head": 6, "d_inner": 17}),
    # decoders
    Architecture("BioGpt", DECODER, TEXT),
    Architecture("Cohere", DECODER, GROUPED),
    Architecture("Ernie4_5", DECODER, {**GROUPED, "head_dim": 4}),
    Architecture("Gemma", DECODER, {**GROUPED, "head_dim": 4}),
    Architecture("Gemma2", DECODER, {**GROUPED, "head_dim": 4, "attn_logit_softcapping": 0.5, "sliding_window": 3}),
    Architecture("Gemma3", DECODER, {**GROUPED, "head_dim": 4, "sliding_window": 3}, config="Gemma3Text"),
    Architecture("Glm", DECODER, {**GROUPED, "head_dim": 4}),
    Architecture("GPT2", DECODER, GPT, ending="LMHeadModel"),
    Architecture("GPTBigCode", DECODER, GPT),
    Architecture("GPTNeoX", DECODER, TEXT),
    Architecture("Granite", DECODER, GROUPED),
    Architecture("Helium", DECODER, {**GROUPED, "head_dim": 4}),
    Architecture("Llama", DECODER, GROUPED),
    Architecture("Mistral", DECODER, {**GROUPED, "sliding_window": 3}),
    Architecture("Mixtral", DECODER, {**GROUPED, **EXPERTS}),
    Architecture("Olmo", DECODER, GROUPED),
    Architecture("Olmo2", DECODER, GROUPED),
    Architecture("OPT", DECODER, {**TEXT, "ffn_dim": 17, "word_embed_proj_dim": 24}),
    Architecture("Phi", DECODER, GROUPED),
    Architecture("Phi3", DECODER, GROUPED),
    Architecture("Qwen2", DECODER, GROUPED),
    Architecture("Qwen2Moe", DECODER, {
        **GROUPED, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    }),
    Architecture("Qwen3", DECODER, {**GROUPED, "head_dim": 4}),
    Architecture("SmolLM3", DECODER, GROUPED),
    Architecture("StableLm", DECODER, GROUPED),
    Architecture("Starcoder2", DECODER, {**GROUPED, "sliding_window": None}),
    # decoders that compute their attention themselves
    Architecture("Bloom", DECODER, {**SPECIAL, "vocab_size": WORDS, "hidden_size": 24, "n_layer": 2, "n_head": 6}),
    Architecture("Falcon", DECODER, {**TEXT, "ffn_hidden_size": 17}),
    Architecture("GPTJ", DECODER, {**GPT, "rotary_dim": 2}),
    Architecture("GPTNeo", DECODER, {
        **SPECIAL, "vocab_size": WORDS, "hidden_size": 24, "num_layers": 2, "num_heads": 6,
        "attention_types": [[["global", "local"], 1]], "window_size": 3, "max_position_embeddings": 67,
    }),
    # decoders whose attention functions need what attend does not have
    Architecture("DeepseekV32", DECODER, {**TEXT, **ROUTED, **LATENT, **INDEXER}),
    Architecture("GptOss", DECODER, {**GROUPED, **EXPERTS, "head_dim": 4, "sliding_window": 3}),
    # encoder–decoders
    Architecture("Bart", SEQ2SEQ, BART),
    Architecture("Blenderbot", SEQ2SEQ, BART),
    Architecture("LongT5", SEQ2SEQ, {**T5, "local_radius": 3, "encoder_attention_type": "local"}),
    Architecture("M2M100", SEQ2SEQ, BART),
    Architecture("Marian", SEQ2SEQ, BART, ending="MTModel"),
    Architecture("MBart", SEQ2SEQ, BART),
    Architecture("MT5", SEQ2SEQ, T5),
    Architecture("NllbMoe", SEQ2SEQ, {
        **BART, "num_experts": 3, "encoder_sparse_step": 2, "decoder_sparse_step": 2, "expert_capacity": 64,
    }),
    Architecture("Pegasus", SEQ2SEQ, BART),
    Architecture("T5", SEQ2SEQ, T5),
    Architecture("Whisper", SEQ2SEQ, {
        **BART, "num_mel_bins": 4, "max_source_positions": TOKENS, "max_target_positions": 67, "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }),
    # pictures
    Architecture("Beit", VISION, PICTURE),
    Architecture("CLIPVision", VISION, PICTURE),
    Architecture("DeiT", VISION, PICTURE),
    Architecture("Dinov2", VISION, PICTURE),
    Architecture("SiglipVision", VISION, PICTURE),
    Architecture("Swin", VISION, SWIN),
    Architecture("ViT", VISION, PICTURE),
    # speech
    Architecture("Hubert", AUDIO, SPEECH),
    Architecture("Wav2Vec2", AUDIO, SPEECH),
    # pictures beside text
    Architecture("CLIP", BOTH, {"text_config": TEXT, "vision_config": PICTURE, "projection_dim": 12}),
)
# fmt: on


@pytest.fixture(scope="module")
def transformers() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    register()
    return transformers


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    assert expected.isfinite().all()
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def real(output: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """What of an output is not about padding, whose queries each implementation lets look at what it likes."""
    mask = inputs.get("attention_mask")
    return output[mask.bool()] if mask is not None and mask.shape == output.shape[:2] else output


def weights(outputs: Mapping[str, Any]) -> list[Tensor]:
    """The weights of all layers, those of the model's parts too."""
    tensors: list[Tensor] = []
    for name, value in outputs.items():
        tensors += weights(value) if isinstance(value, Mapping) else value or () if "attentions" in name else ()
    return tensors


def gradients(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    output = real(model(**inputs)[0], inputs)
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(3))
    model.zero_grad()
    (output * weight).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def compared(architecture: Architecture, result: Any, eager: Any) -> list[str]:
    """What of two models was compared, each held equal."""
    padded, full = architecture.inputs(3), architecture.inputs()
    for inputs in (padded, full):
        with torch.no_grad():
            assert error(real(result(**inputs)[0], inputs), real(eager(**inputs)[0], inputs)) < TOLERANCE
    with torch.no_grad():
        actual, expected = (weights(model(**full, output_attentions=True)) for model in (result, eager))
    assert max(error(*pair) for pair in zip(actual, expected, strict=True)) < TOLERANCE
    assert error(gradients(result, padded), gradients(eager, padded)) < TOLERANCE
    matches = ["outputs", "weights", "gradients"]
    if architecture.kind in (DECODER, SEQ2SEQ):
        padded.pop("decoder_input_ids", None)
        for way, settings in GENERATE.items():
            if way == "static cache" and not eager._can_compile_fullgraph:
                # such as LongT5, whose cache grows
                continue
            steps = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, **settings}
            expected = eager.generate(**padded, **steps)
            assert torch.equal(result.generate(**padded, **steps), expected)
            matches.append(way)
    return matches


def attended(architecture: Architecture, transformers: Any, eager: Any) -> str:
    """What of a model that attends with us is equal to eager attention, or why it is refused."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = architecture.build(transformers, "attent")
            matches = ", ".join(compared(architecture, model, eager))
    except ImplementationError as refusal:
        message = str(refusal)
        itself = re.search(r"computes its attention itself \((.*?)\)", message)
        return (
            f"refused: computed by {itself[1]}"
            if itself
            else "refused: " + re.search(r"has no (.*), which", message)[1]
        )
    partly = {
        match[1]
        for warning in caught
        if (match := re.search(r"the attention that (.*) computes by itself", str(warning.message)))
    }
    return matches + "".join(f"; in part computed by {names}" for names in partly)


def visible(model: Any, inputs: dict[str, Tensor]) -> str:
    """How much of a model's attention `watch` sees."""
    with torch.no_grad(), watch(model) as captured:
        model(**inputs)
    return "none" if not captured else "some" if "not seen" in str(captured) else "all"


def followed(architecture: Architecture, transformers: Any, eager: Any) -> Any:
    """The model after what `watch` advises where it runs eager attention; None where the attention cannot be seen."""
    with torch.no_grad(), watch(eager) as captured:
        eager(**architecture.inputs())
    match = re.search(r'(set_)?attn_implementation(?:\(|=)"(\w+)"', str(captured))
    assert match or "it computes its weights itself" in str(captured)
    if match and match[1]:
        eager.set_attn_implementation(match[2])
    return match and (eager if match[1] else architecture.build(transformers, match[2]))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.name)
@pytest.mark.filterwarnings("ignore:attn_implementation .attent.:UserWarning")
def test_it_attends_as_eager_attention_does_or_is_refused(architecture: Architecture, transformers: Any) -> None:
    eager = architecture.build(transformers, "eager")
    attending = attended(architecture, transformers, eager)
    default = visible(architecture.build(transformers, None), architecture.inputs())
    page = PAGE.read_text(encoding="utf-8")
    # other versions have other models that dispatch; what they compare or refuse was held against eager attention above
    if transformers.__version__.startswith(re.search(r"\(transformers (\d+\.\d+)\)", page)[1] + "."):
        assert f"| `{architecture.model}` | {attending} | {default} |" in page.splitlines()
    # what `watch` advises works
    model = followed(architecture, transformers, eager)
    if model is None:
        with pytest.raises(ImplementationError):
            architecture.build(transformers, "attent")(**architecture.inputs())
    else:
        assert visible(model, architecture.inputs()) in ("all", "some")


def test_the_page_has_every_architecture_and_most_are_equal() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| \w+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [model for model, _ in rows] == [architecture.model for architecture in ARCHITECTURES]
    assert sum(attending.startswith("outputs, weights, gradients") for _, attending in rows) >= 40

"""Small Hugging Face models with random weights, and their inputs; the count of calls that reach our kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.utils._python_dispatch import TorchDispatchMode

from attent.attention.backends import dense
from attent.attention.backends.heuristics import ROWS, using_row
from attent.integrations import torch as torch_integration
from attent.integrations.transformers import register

# nothing is to be fetched, nor drawn on the terminal
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

WORDS = 29
LENGTHS = (7, 4)
# decoders whose query heads share key heads
GROUPED = {
    "vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 31, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def _tokens(*, left: bool = False) -> dict[str, Tensor]:
    """Two sequences of 7 and 4 tokens, padded on the right or on the left."""
    mask = (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.randint(3, WORDS, (2, 7))
    return {"input_ids": ids, "attention_mask": mask.flip(1) if left else mask}


def _built(kind: Any, config: Any, implementation: str) -> Any:
    torch.manual_seed(0)
    config._attn_implementation = implementation
    model = kind(config).eval()
    with torch.no_grad():
        # as they come, such small models look at everything alike
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "relative" not in name:
                parameter.mul_(6 if parameter.std() < 0.1 else 1)
    return model


def _translated() -> dict[str, Tensor]:
    return {**_tokens(), "decoder_input_ids": torch.randint(3, WORDS, (2, 5))}


def _picture() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 12, 12)}


SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ENCODER = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}
# Decoders of three layers, and the module of each layer that attends.
DECODERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "gpt2": ("GPT2", "GPT2LMHeadModel", {
        **SPECIAL, "vocab_size": WORDS, "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 31,
    }, "transformer.h.{}.attn"),
    "llama": ("Llama", "LlamaForCausalLM", {**GROUPED, "num_hidden_layers": 3}, "model.layers.{}.self_attn"),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", {
        **GROUPED, "num_hidden_layers": 3, "head_dim": 4,
    }, "model.layers.{}.self_attn"),
    "gemma3": ("Gemma3Text", "Gemma3ForCausalLM", {
        **GROUPED, "num_hidden_layers": 3, "head_dim": 4, "sliding_window": 3, "final_logit_softcapping": 5.0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }, "model.layers.{}.self_attn"),
    "gpt_oss": ("GptOss", "GptOssForCausalLM", {
        **GROUPED, "num_hidden_layers": 3, "head_dim": 4, "sliding_window": 3, "num_local_experts": 4,
        "num_experts_per_tok": 2, "intermediate_size": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }, "model.layers.{}.self_attn"),
    "phi": ("Phi", "PhiForCausalLM", {
        **GROUPED, "num_hidden_layers": 3, "num_key_value_heads": 6,
    }, "model.layers.{}.self_attn"),
    "openai": ("OpenAIGPT", "OpenAIGPTLMHeadModel", {
        **SPECIAL, "vocab_size": WORDS, "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 31,
    }, "transformer.h.{}.attn"),
}  # fmt: skip
# the beginning of the configuration's name, the model's name, the settings, and the function that makes inputs
MODELS: dict[str, tuple[str, str, dict[str, Any], Callable[[], dict[str, Tensor]]]] = {
    "bert": ("Bert", "BertModel", {**ENCODER, "vocab_size": WORDS, "max_position_embeddings": 11}, _tokens),
    "gpt2": ("GPT2", "GPT2LMHeadModel", {
        **SPECIAL, "vocab_size": WORDS, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 31,
    }, partial(_tokens, left=True)),
    "llama": ("Llama", "LlamaForCausalLM", GROUPED, partial(_tokens, left=True)),
    "gemma2": ("Gemma2", "Gemma2ForCausalLM", {
        **GROUPED, "head_dim": 4, "query_pre_attn_scalar": 5, "attn_logit_softcapping": 0.5, "sliding_window": 3,
    }, partial(_tokens, left=True)),
    "t5": ("T5", "T5ForConditionalGeneration", {
        "vocab_size": WORDS, "d_model": 12, "d_kv": 4, "d_ff": 17, "num_layers": 2, "num_heads": 3,
        "decoder_start_token_id": 0,
    }, _translated),
    "marian": ("Marian", "MarianMTModel", {
        **SPECIAL, "vocab_size": WORDS, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17,
        "max_position_embeddings": 31, "decoder_start_token_id": 0, "forced_eos_token_id": None,
    }, _translated),
    "vit": ("ViT", "ViTModel", {**ENCODER, "image_size": 12, "patch_size": 4}, _picture),
}  # fmt: skip


def _eager_weights(outputs: Any) -> list[Tensor]:
    weights = [*(outputs.get("encoder_attentions") or ()), *(outputs.get("attentions") or ())]
    for pair in zip(outputs.get("decoder_attentions") or (), outputs.get("cross_attentions") or (), strict=True):
        weights.extend(pair)
    return weights


@pytest.fixture(scope="session")
def eager_weights() -> Callable[[Any], list[Tensor]]:
    """A function that returns the weights among a model's outputs, in the order of computation."""
    return _eager_weights


class Decoder(NamedTuple):
    """A causal language model, the paths of its attention, and two inputs of four sequences of 7 tokens.

    The attention is peaked: the mean entropy of its weights is below half its largest, ln of the keys seen.
    """

    model: Any
    paths: list[str]
    clean: Tensor
    corrupt: Tensor


def _decoder(transformers: Any, name: str, implementation: str) -> Decoder:
    config, kind, settings, path = DECODERS[name]
    configuration = getattr(transformers, f"{config}Config")(**settings)
    configuration._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, kind)(configuration).eval()
    clean, corrupt = torch.randint(3, WORDS, (2, 4, 7))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.25 if parameter.dim() > 1 else 0.1))
        for _ in range(40):
            weights = torch.stack(model(clean, output_attentions=True).attentions)  # (L, B, H, T, T)
            entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1).mean((0, 1, 2))
            if entropy.mean() < 0.5 * torch.arange(1.0, 8).log().mean():
                break
            for part, parameter in model.named_parameters():
                if any(query in part for query in ("q_proj.weight", "q_norm", "c_attn.weight")):
                    parameter.mul_(1.3)
        else:
            raise AssertionError(f"attention of {name} stays flat")
    model.set_attn_implementation(implementation)
    return Decoder(model, [path.format(layer) for layer in range(3)], clean, corrupt)


@pytest.fixture(scope="session")
def decoder() -> Callable[[str, str], Decoder]:
    """A function that builds a decoder by the name of its architecture and of its attention implementation."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    register()
    return partial(_decoder, transformers)


class Models:
    """Builders of a model with an attention implementation, always with the same weights, and of its inputs."""

    def __init__(self, transformers: Any) -> None:
        self.transformers = transformers

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, dict[str, Tensor]]]:
        return partial(self._build, *MODELS[name])

    def _build(
        self, config: str, model: str, settings: dict[str, Any], inputs: Any, implementation: str = "sdpa"
    ) -> tuple[Any, dict[str, Tensor]]:
        configuration = getattr(self.transformers, f"{config}Config")(**settings)
        return _built(getattr(self.transformers, model), configuration, implementation), inputs()


@pytest.fixture(scope="session")
def models() -> Models:
    """The builders of models; skips the test if transformers is not installed."""
    return Models(pytest.importorskip("transformers", reason="transformers is not installed"))


@pytest.fixture(scope="session")
def active() -> Callable[..., AbstractContextManager[None]]:
    """A function that returns a context in which PyTorch calls our kernels; arguments as for `register`."""

    @contextmanager
    def activated(**options: bool) -> Iterator[None]:
        torch_integration.register(**options)
        activate_flash_attention_impl("attent")  # pyright: ignore[reportArgumentType]
        try:
            yield
        finally:
            restore_flash_attention_impl()

    return activated


class Largest(TorchDispatchMode):
    """The largest storage that PyTorch makes meanwhile, in bytes."""

    bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


@pytest.fixture
def largest() -> Largest:
    return Largest()


class Calls:
    """How many calls reached our kernel."""

    count = 0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Count the calls that reach our kernel, which is chosen at any size and length whatever the processor."""
    result, run = Calls(), dense.run

    def counted(*args: Any) -> Tensor:
        result.count += 1
        return run(*args)

    monkeypatch.setattr(dense, "run", counted)
    monkeypatch.setattr(torch_integration, "MULTIPLICATIONS", 0)
    monkeypatch.setattr(torch_integration, "MULTIPLICATIONS_WITH_DROPOUT", 0)
    with using_row(ROWS["avx512"]):
        yield result

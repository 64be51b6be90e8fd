"""Folders of small decoder-only language models with random weights, as save_pretrained writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

WORDS = [f"word{number}" for number in range(9)] + "the dog was happy so he a cat sat on mat in park".split()  # noqa: SIM905
SPECIALS = ["<s>", "</s>", "<unk>"]
SIZE = len(SPECIALS) + len(WORDS)
SIZES = {
    "vocab_size": SIZE, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 6,
    "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT = {
    "vocab_size": SIZE, "n_embd": 24, "n_layer": 3, "n_head": 6, "n_positions": 64, "bos_token_id": 0,
    "eos_token_id": None,
}  # fmt: skip
# the beginning of the class names, the end of the model's, the settings, and the output projection
CAUSAL: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "gpt2": ("GPT2", "LMHeadModel", GPT, "c_proj"),
    "openai": ("OpenAIGPT", "LMHeadModel", GPT, "c_proj"),
    "llama": ("Llama", "ForCausalLM", GROUPED, "o_proj"),
    "mistral": ("Mistral", "ForCausalLM", {**GROUPED, "sliding_window": 5}, "o_proj"),
    "qwen2": ("Qwen2", "ForCausalLM", GROUPED, "o_proj"),
    "qwen3": ("Qwen3", "ForCausalLM", {**GROUPED, "head_dim": 8}, "o_proj"),
    "gemma2": ("Gemma2", "ForCausalLM", {
        **GROUPED, "head_dim": 8, "query_pre_attn_scalar": 5, "attn_logit_softcapping": 5.0, "sliding_window": 5,
    }, "o_proj"),
    "gemma3": ("Gemma3Text", "Gemma3ForCausalLM", {**GROUPED, "head_dim": 8, "sliding_window": 5}, "o_proj"),
    "phi": ("Phi", "ForCausalLM", GROUPED, "dense"),
    "phi3": ("Phi3", "ForCausalLM", GROUPED, "o_proj"),
    "olmo2": ("Olmo2", "ForCausalLM", GROUPED, "o_proj"),
    "neox": ("GPTNeoX", "ForCausalLM", SIZES, "dense"),
    "opt": ("OPT", "ForCausalLM", {
        **SIZES, "ffn_dim": 20, "word_embed_proj_dim": 24,
    }, "out_proj"),
    "gpt_oss": ("GptOss", "ForCausalLM", {
        **GROUPED, "head_dim": 8, "sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1,
    }, "o_proj"),
}  # fmt: skip

# Factors of the weights of queries and keys, or of their norms, with which attention is peaked.
PEAKED = {"gpt2": 4, "openai": 12, "mistral": 4, "phi": 4, "phi3": 4, "neox": 4, "opt": 4}


def build(transformers: Any, name: str) -> Any:
    """A model whose weights are scaled until its attention is peaked."""
    kind, ending, settings, _ = CAUSAL[name]
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, ending if ending.startswith(kind.removesuffix("Text")) else kind + ending)(config)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if parameter.dim() > 1 and "lm_head" not in path:
                parameter.mul_(8 if parameter.std() < 0.1 else 1)
            if re.search(r"(q|k|qkv)_proj.*weight|c_attn.weight|query_key_value.weight", path):
                parameter.mul_(PEAKED.get(name, 3))
            if re.search(r"[qk]_norm", path):
                parameter.fill_(3.0)
            if "sinks" in path:
                parameter.normal_()
    return model.eval()


@pytest.fixture(scope="session")
def causal_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a model of CAUSAL, with a tokenizer that puts <s> before a text."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import tokenizers

    made: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in made:
            folder = made[name] = tmp_path_factory.mktemp(name)
            build(transformers, name).save_pretrained(folder)
            vocabulary = {word: number for number, word in enumerate([*SPECIALS, *WORDS])}
            tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
            tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", 0)]
            )
            names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
            transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
        return made[name]

    return folder_of


class Causal(NamedTuple):
    """A model's name, its folder, and the name of its output projection."""

    name: str
    folder: Path
    projection: str


@pytest.fixture(params=CAUSAL)
def causal(request: pytest.FixtureRequest, causal_folder: Callable[[str], Path]) -> Causal:
    """Each model of CAUSAL."""
    return Causal(request.param, causal_folder(request.param), CAUSAL[request.param][3])

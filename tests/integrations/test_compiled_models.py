"""Models of transformers under torch.compile: one graph with our operator, and the numbers of eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.integrations.varlen import flash_attn_varlen_func, varlen_attn
from attent.ops.dense_attention import is_compiled

pytestmark = [
    pytest.mark.skipif(not is_compiled(), reason="no extension: attent was installed without a compiler"),
    pytest.mark.slow,
    pytest.mark.no_cover,
    # PyTorch's compiler itself imports what PyTorch has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit"),
]

WORDS, LENGTHS, LAYERS = 29, (7, 4), 2
SIZES = {"vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 17, "num_hidden_layers": LAYERS,
         "num_attention_heads": 6}  # fmt: skip
IDS = torch.randint(3, WORDS, (2, 7), generator=torch.Generator().manual_seed(2))
MASK = (torch.arange(7) < torch.tensor(LENGTHS)[:, None]).long()


def model(name: str) -> Any:
    """Return a BERT for masked tokens or a Llama with grouped heads, whose weights are large enough to choose keys."""
    transformers = pytest.importorskip("transformers")
    from attent.integrations.transformers import register

    register()
    torch.manual_seed(0)
    if name == "bert":
        built = transformers.BertForMaskedLM._from_config(
            transformers.BertConfig(**SIZES), attn_implementation="attent"
        )
    else:
        config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, attention_dropout=0.1)
        built = transformers.LlamaForCausalLM._from_config(config, attn_implementation="attent")
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return built.train()


def loss_and_gradients(call: Any, built: Any, arguments: dict[str, Tensor]) -> list[Tensor]:
    """Take a step of training; dropout draws the same numbers in every call."""
    torch.manual_seed(3)
    result = call(input_ids=IDS, labels=IDS, **arguments)
    return [result.loss, *torch.autograd.grad(result.loss, [p for p in built.parameters() if p.requires_grad])]


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_step_of_training_is_one_graph(name: str, is_padded: bool, compile_whole: Any) -> None:
    built = model(name)
    arguments = {"attention_mask": MASK} if is_padded else {}
    compiled, operators = compile_whole(built)
    results = [loss_and_gradients(call, built, arguments) for call in (compiled, built)]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    assert operators() == [["attent.dense_attention.default"] * LAYERS]


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_inductor_computes_the_same_logits(name: str, compile_whole: Any) -> None:
    built = model(name).eval()
    compiled, operators = compile_whole(built, "inductor")
    with torch.no_grad():
        actual, expected = (call(input_ids=IDS, attention_mask=MASK).logits for call in (compiled, built))
    torch.testing.assert_close(actual[MASK.bool()], expected[MASK.bool()], rtol=1e-4, atol=1e-4)
    assert operators() == [["attent.dense_attention.default"] * LAYERS]


def test_one_graph_serves_texts_of_every_length(compile_whole: Any) -> None:
    built = model("bert").eval()
    compiled, operators = compile_whole(built, dynamic=True)
    for length in (7, 9, 14):
        ids = torch.randint(3, WORDS, (2, length))
        with torch.no_grad():
            torch.testing.assert_close(compiled(ids).logits, built(ids).logits, rtol=1e-4, atol=1e-4)
    assert operators() == [["attent.dense_attention.default"] * LAYERS]


def test_a_packed_batch_of_a_model_is_one_graph(compile_whole: Any) -> None:
    built = model("llama").eval()
    starts = torch.tensor([0, *LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    packed, positions = IDS[MASK.bool()][None], torch.cat([torch.arange(length) for length in LENGTHS])[None]
    boundaries = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 7, "max_length_k": 7}
    compiled, operators = compile_whole(built)
    with torch.no_grad():
        actual, expected = (
            call(packed, position_ids=positions, use_cache=False, **boundaries).logits for call in (compiled, built)
        )
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert operators() == [["attent.dense_attention.default"] * LAYERS]


@pytest.mark.parametrize("options", [{}, {"window_size": (2, 0)}, {"causal": True, "dropout_p": 0.2}], ids=str)
def test_packed_batches_of_every_length_need_one_more_graph(options: dict[str, Any], compile_whole: Any) -> None:
    def attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor) -> Tensor:
        function = flash_attn_varlen_func if "causal" in options else varlen_attn
        return function(query, key, value, starts, starts, 9, 9, **options)

    compiled, operators = compile_whole(attention)
    for lengths in ((3, 9, 1), (4, 2, 20, 7), (8, 30)):
        starts = torch.tensor([0, *lengths]).cumsum(0)
        leaves = [(2 * torch.randn(sum(lengths), 2, 8)).requires_grad_() for _ in range(3)]
        results = []
        for call in (compiled, attention):
            torch.manual_seed(5)
            context = call(*leaves, starts)
            results.append([context, *torch.autograd.grad(context.square().sum(), leaves)])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    assert operators() == [["attent.dense_attention.default"]] * 2


def test_boundaries_that_miss_queries_are_still_refused(compile_whole: Any) -> None:
    compiled, _ = compile_whole(lambda tensor, starts: varlen_attn(tensor, tensor, tensor, starts, starts, 9, 9))
    with pytest.raises(RuntimeError, match="size"):
        compiled(torch.randn(9, 2, 8), torch.tensor([0, 4, 8]))

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent import types
from attent.layers.embeddings import TokenEmbedding

jaxtyping = pytest.importorskip("jaxtyping", reason="without jaxtyping the types are plain tensors")

FITTING = {
    "Queries": torch.zeros(2, 3, 5, 7),
    "Keys": torch.zeros(2, 1, 11, 7),
    "Values": torch.zeros(2, 1, 11, 13),
    "Scores": torch.zeros(2, 3, 5, 11),
    "Allowed": torch.ones(2, 1, 1, 11, dtype=torch.bool),
    "Contexts": torch.zeros(2, 3, 5, 13),
    "Features": torch.zeros(2, 5, 17),
    "StepFeatures": torch.zeros(2, 19),
    "Tokens": torch.zeros(2, 5, dtype=torch.int64),
    "Lengths": torch.zeros(2, dtype=torch.int64),
    "Logits": torch.zeros(2, 5, 19),
}


@pytest.mark.parametrize("name", FITTING)
def test_each_type_takes_its_shape_and_kind_of_number_alone(name: str) -> None:
    kind, tensor = getattr(types, name), FITTING[name]
    assert isinstance(tensor, kind)
    assert not isinstance(tensor.unsqueeze(0), kind)
    assert not isinstance(tensor.to(torch.complex64), kind)


def test_every_type_is_tested() -> None:
    drawn = {name for name, value in vars(types).items() if isinstance(value, type) and hasattr(value, "dim_str")}
    assert set(FITTING) == drawn


def test_one_letter_is_one_length() -> None:
    @jaxtyping.jaxtyped(typechecker=None)
    def agree(query: Tensor, contexts: Tensor) -> bool:
        return isinstance(query, types.Queries) and isinstance(contexts, types.Contexts)

    assert agree(FITTING["Queries"], FITTING["Contexts"])
    assert not agree(FITTING["Queries"], FITTING["Contexts"][:, :, :3])


def test_a_mask_may_leave_lengths_to_broadcasting() -> None:
    @jaxtyping.jaxtyped(typechecker=None)
    def agree(scores: Tensor, allowed: Tensor) -> bool:
        return isinstance(scores, types.Scores) and isinstance(allowed, types.Allowed)

    assert agree(FITTING["Scores"], FITTING["Allowed"])
    assert agree(FITTING["Scores"], torch.ones(1, 3, 5, 1, dtype=torch.bool))
    assert not agree(FITTING["Scores"], torch.ones(2, 1, 1, 7, dtype=torch.bool))


def test_the_suite_checks_shapes_in_signatures() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="Type-check error"):
        TokenEmbedding(5, 3)(torch.zeros(2, 3, dtype=torch.float32))

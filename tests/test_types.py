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


def test_each_type_takes_its_shape_and_kind_of_number_alone() -> None:
    assert set(FITTING) == {name for name, kind in vars(types).items() if hasattr(kind, "dim_str")}
    for name, tensor in FITTING.items():
        kind = getattr(types, name)
        assert isinstance(tensor, kind), name
        assert not isinstance(tensor.unsqueeze(0), kind), name
        assert not isinstance(tensor.to(torch.complex64), kind), name


@jaxtyping.jaxtyped(typechecker=None)
def agree(first: Tensor, first_type: str, second: Tensor, second_type: str) -> bool:
    return isinstance(first, getattr(types, first_type)) and isinstance(second, getattr(types, second_type))


def test_one_letter_is_one_length_but_a_mask_may_leave_lengths_to_broadcasting() -> None:
    queries, contexts, scores = (FITTING[name] for name in ("Queries", "Contexts", "Scores"))
    assert agree(queries, "Queries", contexts, "Contexts")
    assert not agree(queries, "Queries", contexts[:, :, :3], "Contexts")
    assert agree(scores, "Scores", FITTING["Allowed"], "Allowed")
    assert agree(scores, "Scores", torch.ones(1, 3, 5, 1, dtype=torch.bool), "Allowed")
    assert not agree(scores, "Scores", torch.ones(2, 1, 1, 7, dtype=torch.bool), "Allowed")


def test_the_suite_checks_shapes_in_signatures() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="Type-check error"):
        TokenEmbedding(5, 3)(torch.zeros(2, 3, dtype=torch.float32))

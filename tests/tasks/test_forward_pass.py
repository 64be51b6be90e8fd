from __future__ import annotations

import torch

from attent.tasks.fill_mask.fill_mask import FillMask
from attent.text.tokenizer import SPECIALS
from attent.views.walk_run import ForwardPass


def test_a_pass_runs_as_often_as_one_likes_and_names_its_outputs(filler: FillMask) -> None:
    word = filler.tokenizer.piece(SPECIALS).strip()
    forward_pass: ForwardPass = filler.forward_pass(f"{word} [MASK]")
    first, second = forward_pass.run(), forward_pass.run()
    assert list(first) == [
        f"encoder.layers.{layer}.self_attention" for layer in range(len(filler.model.encoder.layers))
    ]
    for name in first:
        assert torch.equal(first[name].weights.dense(), second[name].weights.dense())
    assert list(forward_pass.rows or ()) == [1]
    assert forward_pass.output_name(forward_pass.first) == word

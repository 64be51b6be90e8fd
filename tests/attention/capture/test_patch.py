"""`attent.patch` and `attent.patch_paths` on models of plain PyTorch, their files and their errors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attent
from attent.attention.capture.attribution import LogitAttribution
from attent.attention.capture.effects import EffectFile, HeadEffect, PatchEffects
from attent.attention.capture.intervene import intervene
from attent.attention.capture.patch import Experiment, logit_difference, recorded
from attent.attention.capture.stack import LayerStack
from attent.errors import ArgumentError, DataError, ShapeError, UnknownNameError

CLEAN, CORRUPT = torch.randint(0, 13, (2, 4, 6), generator=torch.Generator().manual_seed(2))
ANSWERS = (torch.tensor([1, 2, 3, 4]), 5)


def whole_runs(model: nn.Module, layer: int, head: int) -> Tensor:
    """The metric of a whole run with the context of one head from the clean run, by hooks."""
    contexts: list[Tensor] = []
    projection = model.get_submodule(f"layers.{layer}.attention.o_proj")

    def put(module: nn.Module, args: Any) -> Any:
        context = args[0].clone()
        context.unflatten(-1, (3, 4))[:, :, head] = contexts[0].unflatten(-1, (3, 4))[:, :, head]
        return (context,)

    with torch.no_grad():
        for tokens, hook in ((CLEAN, lambda _, args: contexts.append(args[0])), (CORRUPT, put)):
            handle = projection.register_forward_pre_hook(hook)
            logits = model(tokens).logits[:, -1]
            handle.remove()
    return logits[torch.arange(4), ANSWERS[0]] - logits[:, 5]


def test_metrics_of_all_forms_and_both_directions_agree(causal_model: Any) -> None:
    effects = attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS)
    for layer, head in ((0, 1), (1, 0), (2, 2)):
        torch.testing.assert_close(effects.values[layer, head].float(), whole_runs(causal_model, layer, head))

    def own(output: Any) -> Tensor:
        return logit_difference(*ANSWERS)(output)

    same = [
        attent.patch(causal_model, {"tokens": CLEAN}, {"tokens": CORRUPT}, own),
        attent.patch(causal_model, CLEAN, CORRUPT, own, positions=[-1]),
        attent.patch(causal_model, CLEAN, CORRUPT, lambda output: own(output).mean()),
    ]
    for result in same:
        torch.testing.assert_close(result.effects, effects.effects, atol=1e-5, rtol=1e-5)
    assert same[2].values.shape == (3, 3, 1)
    noise = attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, direction="noise")
    exchanged = attent.patch(causal_model, CORRUPT, CLEAN, ANSWERS)
    torch.testing.assert_close(noise.values, exchanged.values)
    torch.testing.assert_close(noise.effects, 1 - exchanged.effects)
    assert torch.equal(noise.clean, effects.clean) and torch.equal(noise.corrupt, effects.corrupt)


def test_the_stack_is_resumed_and_a_model_that_is_none_runs_as_a_whole(causal_model: Any) -> None:
    class Twice(nn.Module):
        """A model whose layers run twice: not one after another, each once."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = causal_model

        def forward(self, tokens: Tensor) -> Any:
            return self.inner(self.inner(tokens).logits.argmax(-1))

    experiment = Experiment(causal_model, ANSWERS, has_calls=False)
    base, _ = recorded(experiment, experiment.arguments(CLEAN, CORRUPT), "denoise")
    assert experiment.stack is not None and base.run is not None and experiment._trims  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ArgumentError, match="more than once"):
        attent.patch(Twice().eval(), CLEAN, CORRUPT, ANSWERS)
    layer = nn.TransformerEncoderLayer(8, 2, 11, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    clean, corrupt = torch.randn(2, 3, 5, 8)
    with pytest.raises(ArgumentError, match="not known"):
        LayerStack.of(encoder)
    for activation in ("output", "keys"):
        effects = attent.patch(encoder, clean, corrupt, lambda output: output[:, 0, 0], activation=activation)
        assert effects.paths == ("layers.0.self_attn", "layers.1.self_attn") and effects.values.shape == (2, 2, 3)
        assert (effects.values - effects.corrupt).abs().max() > 1e-2
    # a head of the corrupt run that has the weights of the clean run
    with torch.no_grad(), attent.watch(encoder) as maps:
        encoder(clean)
    weights = maps["layers.0.self_attn"].dense()[:, 1]
    with torch.no_grad(), intervene(encoder, {"layers.0.self_attn": {1: lambda _: weights}}):
        plain = encoder(corrupt)[:, 0, 0]
    of_weights = attent.patch(encoder, clean, corrupt, lambda output: output[:, 0, 0], activation="weights")
    torch.testing.assert_close(of_weights.values[0, 1].float(), plain, atol=1e-5, rtol=1e-5)


def test_a_file_is_continued_with_the_same_bits(causal_model: Any, tmp_path: Path) -> None:
    file = tmp_path / "effects.jsonl"
    whole = attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, by_position=True)
    computed: list[HeadEffect] = []

    def stop(effect: HeadEffect, total: int) -> None:
        assert total == 3 * 3 * 6
        computed.append(effect)
        if len(computed) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, by_position=True, file=file, on_effect=stop)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 21
    file.write_text("\n".join(lines) + "\n" + lines[-1][:9], encoding="utf-8")
    again = attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, by_position=True, file=file)
    assert torch.equal(again.values, whole.values)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 54 and len({*lines}) == 55
    # a complete file needs no patch at all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Experiment, "patched", None)
        assert torch.equal(
            attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, by_position=True, file=file).values, whole.values
        )
    changed = copy.deepcopy(causal_model)
    with torch.no_grad():
        changed.head.bias[0] += 1e-6
    for model, corrupt, metric, options in (
        (changed, CORRUPT, ANSWERS, {}),
        (causal_model, CORRUPT.roll(1), ANSWERS, {}),
        (causal_model, CORRUPT, (1, 2), {}),
        (causal_model, CORRUPT, ANSWERS, {"activation": "keys"}),
        (causal_model, CORRUPT, ANSWERS, {"direction": "noise"}),
    ):
        with pytest.raises(ArgumentError, match="belongs to another model"):
            attent.patch(model, CLEAN, corrupt, metric, **{"by_position": True, "file": file, **options})
    file.write_text("\n".join([lines[0], '{"layer": 0}', *lines[2:]]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2 is damaged"):
        EffectFile(file, json.loads(lines[0]))


def test_effects_are_normalized_printed_and_ranked() -> None:
    values = torch.tensor([[1.0, 3.0], [0.0, 5.0]])[..., None]
    effects = PatchEffects("output", "denoise", ("a", "b"), torch.tensor([5.0]), torch.tensor([1.0]), values)
    assert effects.effects.tolist() == [[0.0, 0.5], [-0.25, 1.0]]
    assert effects.top(2) == [HeadEffect("b", 1, 1, None, 1.0), HeadEffect("a", 0, 1, None, 0.5)]
    assert str(effects).splitlines() == [
        "output, denoise: clean 5, corrupt 1", "        0       1", "a  +0.000  +0.500", "b  -0.250  +1.000",
    ]  # fmt: skip
    assert json.loads(json.dumps(effects.to_dict()))["effects"] == [[0.0, 0.5], [-0.25, 1.0]]
    by_position = PatchEffects("output", "noise", ("a",), effects.clean, effects.corrupt, values[None])
    assert by_position.top(1) == [HeadEffect("a", 0, 1, 0, -0.25)]
    assert str(by_position).splitlines()[1:4] == [
        "        0       1", "a  +0.000  -0.250", "a, head 1, position 0: -0.250",
    ]  # fmt: skip


def test_errors_say_what_is_wrong(causal_model: Any) -> None:
    with pytest.raises(ShapeError, match=r"must have the same shapes, got \{'tokens': \(4, 6\)\} and .*\(4, 5\)"):
        attent.patch(causal_model, CLEAN, CORRUPT[:, :5], ANSWERS)
    with pytest.raises(ArgumentError, match="for both inputs"):
        attent.patch(causal_model, CLEAN, CLEAN, ANSWERS)
    with pytest.raises(ShapeError, match=r"\(4, 6, 13\)"):
        attent.patch(causal_model, CLEAN, CORRUPT, lambda output: output.logits)
    with pytest.raises(UnknownNameError, match="did you mean 'keys'"):
        attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, activation="key")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownNameError, match="direction"):
        attent.patch(causal_model, CLEAN, CORRUPT, ANSWERS, direction="up")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match=r"model\.eval"):
        attent.patch(causal_model.train(), CLEAN, CORRUPT, ANSWERS)


def test_paths_lead_to_receivers_above(causal_model: Any) -> None:
    effects = attent.patch_paths(causal_model, CLEAN, CORRUPT, ANSWERS, [(1, 2)], into="values")
    assert (effects.effects[0].abs() > 1e-4).all() and not effects.effects[1:].any()
    with pytest.raises(ArgumentError, match="layer of a receiver"):
        attent.patch_paths(causal_model, CLEAN, CORRUPT, ANSWERS, [(3, 0)])
    with pytest.raises(UnknownNameError, match="activation of receivers"):
        attent.patch_paths(causal_model, CLEAN, CORRUPT, ANSWERS, [(1, 0)], into="output")
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 11, batch_first=True), 2).eval()
    with pytest.raises(ArgumentError, match="no single stack"):
        attent.patch_paths(encoder, *torch.randn(2, 3, 5, 8), lambda output: output.sum(), [(1, 0)])


def test_a_logit_of_plain_pytorch_is_attributed(causal_model: Any) -> None:
    with attent.watch(causal_model, inputs=True) as seen:
        logits = causal_model(CLEAN).logits
    result = seen.logit_attribution((1, 2), position=3)
    torch.testing.assert_close(result.logit, (logits[:, 3, 1] - logits[:, 3, 2]).detach())
    assert isinstance(result, LogitAttribution)
    torch.testing.assert_close(sum(result.terms().values()), result.logit, atol=1e-5, rtol=1e-5)

"""attent patch: the effect of each head of a Hugging Face model on the difference between two texts."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import AUTO, Device, Json, PretrainedLoading
from attent.cli.output import say, write
from attent.errors import ArgumentError, DataError, refuse
from attent.setting import Flag, Help
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    import torch

    from attent.attention.capture.effects import HeadEffect
    from attent.attention.capture.patch import logit_difference
    from attent.tasks.pretrained import PretrainedModel

# The end of errors about --answers.
ANSWER = "--answers takes two tokens of the model, such as ' Mary' ' John'"


class HeadActivation(StrEnum):
    """Activations of a head that can be patched."""

    output = "output"
    weights = "weights"
    queries = "queries"
    keys = "keys"
    values = "values"


class PatchDirection(StrEnum):
    """The run that is patched: that of the corrupt text, or for noise that of the clean one."""

    denoise = "denoise"
    noise = "noise"


def patch(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face language model: folder or name.")],
    clean: Annotated[str, Help("Text whose activations are taken.")],
    corrupt: Annotated[str, Help("Text of as many tokens, in whose run they are put.")],
    answers: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="RIGHT WRONG", help="Two tokens; the model's own for each text unless given."),
    ] = None,
    activation: Annotated[HeadActivation, Flag("--what"), Help("What of a head is patched.")] = HeadActivation.output,
    direction: Annotated[PatchDirection, Help("noise exchanges the two texts.")] = PatchDirection.denoise,
    by_position: Annotated[bool, Help("Patch each position by itself.")] = False,
    out: Annotated[Path | None, Help("File for each effect, from which the same command resumes.")] = None,
    device: Device = AUTO,
    download: Annotated[bool, Help("Download a model that is given by name.")] = False,
    as_json: Json = False,
) -> None:
    """Rank the heads of a Hugging Face model by what they carry of the difference between two texts.

    One head at a time gets its activation of the clean text while the model reads the corrupt one. The effect is the
    share of the difference of two logits that comes back: 0 is the corrupt text, 1 the clean one. The logits are those
    after the last token, or in a masked language model of the [MASK] that both texts have in the same place.
    """
    for text in (clean, corrupt):
        check_utf8(text)
    pretrained = PretrainedLoading(device, download=download).pretrained(model)
    if pretrained is None or pretrained.reads != "text":
        raise ArgumentError(f"{model} is no language model of Hugging Face, whose heads attent patch compares")
    import torch

    from attent.attention.capture.patch import patch as patched

    ids = [pretrained._encode(text) for text in (clean, corrupt)]  # pyright: ignore[reportPrivateUsage]
    if len(ids[0]) != len(ids[1]):
        raise DataError(f"both texts must have the same number of tokens, got {len(ids[0])} and {len(ids[1])}")
    sides = torch.tensor(ids, device=pretrained.device)
    metric = _metric(pretrained, answers, sides)
    names = [pretrained.tokenizer.decode([token]) for token in (metric.right, metric.wrong)]
    say(f"logit of {names[0]!r} minus that of {names[1]!r}")

    def report(effect: HeadEffect, total: int) -> None:
        if not effect.position:
            say(f"layer {effect.layer}, head {effect.head} of {total} patches: {effect.effect:+.3f}")

    options = {"activation": activation.value, "direction": direction.value, "by_position": by_position}
    effects = patched(pretrained.model, sides[:1], sides[1:], metric, file=out, on_effect=report, **options)
    write(json.dumps(effects.to_dict() | {"answers": names}, indent=2) if as_json else effects)


def _metric(pretrained: PretrainedModel, answers: tuple[str, str] | None, sides: torch.Tensor) -> logit_difference:
    """Return the difference of the answers' logits, or of those that the model itself prefers for each text."""
    import torch

    from attent.attention.capture.patch import logit_difference

    blank = (sides[0] == (getattr(pretrained.tokenizer, "mask_token_id", None) or -1)).nonzero().flatten().tolist()
    position = blank[0] if blank else -1
    if answers is None:
        with torch.no_grad():
            right, wrong = pretrained.model(sides).logits[:, position].argmax(-1).tolist()
        if right == wrong:
            name = pretrained.tokenizer.decode([right])
            raise ArgumentError(f"the model prefers {name!r} for both texts; {ANSWER}")
        return logit_difference(right, wrong, position)
    tokens = [pretrained.tokenizer(answer, add_special_tokens=False).input_ids for answer in answers]
    refuse(
        *(
            (len(pieces) != 1, f"{ANSWER}; {answer!r} has {len(pieces)} tokens")
            for answer, pieces in zip(answers, tokens, strict=True)
        )
    )
    return logit_difference(tokens[0][0], tokens[1][0], position)

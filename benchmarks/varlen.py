"""Packed batches on a CPU: beside one dense call of as many pairs, beside padding, and in a BERT of base size.

scripts/bench varlen [attention bert]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from _sides import head, milliseconds, run, table
from torch import Tensor

from attent.attention import attend
from attent.integrations.torch import varlen_attn

HEADS, WIDTH = 12, 64
# Tokens of texts, as captions, paragraphs and pages have them.
MIXED = (12, 9, 17, 300, 44, 26, 8, 150, 512, 33, 21, 90, 14, 60, 11, 205)

# Fewer for a whole model, whose update takes seconds on one core.
TEXTS = (12, 9, 17, 128, 44, 26, 6, 60)


def starts(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def attention() -> None:
    """Measure equal lengths beside one dense call of the same pairs, and mixed ones beside a padded batch."""
    head(f"Packed batches, {HEADS} heads of {WIDTH}, float32, forward and forward + backward")
    rows = []
    for name, lengths in (("16 of 128", (128,) * 16), ("4 of 1,024", (1024,) * 4), ("16 mixed", MIXED)):
        packed = [torch.randn(sum(lengths), HEADS, WIDTH, requires_grad=True) for _ in range(3)]
        longest, bounds = max(lengths), starts(lengths)
        padded = [torch.randn(len(lengths), HEADS, longest, WIDTH, requires_grad=True) for _ in range(3)]
        arguments = {} if len(set(lengths)) == 1 else {"lengths": torch.tensor(lengths), "query_start": 0}
        sides: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
            "padded": (lambda padded=padded, arguments=arguments: attend(*padded, **arguments), padded),
            "packed": (
                lambda packed=packed, bounds=bounds, longest=longest: varlen_attn(
                    *packed, bounds, bounds, longest, longest
                ),
                packed,
            ),
        }
        with torch.no_grad():
            once = milliseconds({side: work for side, (work, _) in sides.items()}, rounds=9, seconds=2)
        twice = milliseconds(
            {
                side: lambda work=work, inputs=inputs: torch.autograd.grad(work().sum(), inputs)
                for side, (work, inputs) in sides.items()
            },
            rounds=9,
            seconds=2,
        )
        cells = [
            cell
            for times in (once, twice)
            for cell in (
                f"{times['padded']:.3g}",
                f"{times['packed']:.3g}",
                f"{times['padded'] / times['packed']:.2f}",
            )
        ]
        rows.append([name, *cells])
    columns = ["attend with padding, ms", "packed, ms", "×"]
    table(["", *columns, *(f"with gradients: {columns[0]}", *columns[1:])], rows)


def bert() -> None:
    """Measure a BERT of base size with random weights on texts of mixed lengths, padded and packed."""
    from transformers import BertConfig, BertModel

    from attent.integrations.transformers import register

    register()
    head("BERT of base size, random weights, 8 texts of 6 to 128 tokens, float32, without gradients")
    ids = torch.randint(1000, 30000, (len(TEXTS), max(TEXTS)))
    mask = (torch.arange(max(TEXTS)) < torch.tensor(TEXTS)[:, None]).long()
    packed, positions = ids[mask.bool()][None], torch.cat([torch.arange(length) for length in TEXTS])[None]
    bounds = starts(TEXTS).int()
    config = BertConfig()
    models = {}
    for name in ("sdpa", "attent"):
        torch.manual_seed(0)
        models[name] = BertModel._from_config(config, attn_implementation=name).eval()
    boundaries = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 128, "max_length_k": 128}
    sides = {
        "padded, sdpa": lambda: models["sdpa"](ids, attention_mask=mask)[0],
        "padded, attent": lambda: models["attent"](ids, attention_mask=mask)[0],
        "packed, attent": lambda: models["attent"](packed, position_ids=positions, **boundaries)[0],
    }
    with torch.no_grad():
        expected, actual = sides["padded, sdpa"]()[mask.bool()], sides["packed, attent"]()[0]
        times = milliseconds(sides, rounds=3, seconds=5)
    table(
        [*(f"{name}, ms" for name in sides), "padded, sdpa / packed", "largest difference"],
        [
            [
                *(f"{times[name]:,.0f}" for name in sides),
                f"{times['padded, sdpa'] / times['packed, attent']:.2f}",
                f"{float((expected - actual).abs().max() / expected.abs().max()):.1e}",
            ]
        ],
    )


if __name__ == "__main__":
    run({"attention": attention, "bert": bert}, __doc__)

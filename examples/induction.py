"""Find the induction circuit of a small language model: a head that copies what followed the same token before.

    python examples/induction.py [SEED]

A GPT-2 of two layers with four heads is trained on sequences of random tokens that repeat, with random periods, so that
only an earlier occurrence of the current token says what comes next. Olsson et al. 2022 (arXiv:2209.11895) describe
the circuit of such models: a head of the first layer writes, at each token, which token stands before it; a head of
the second layer reads that in its keys, looks up the token after the earlier occurrence, and copies it. Each of these
claims is tested here, with attention maps, logit attribution, activation patching and path patching.
"""

from __future__ import annotations

import sys
import time

import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

import attent

VOCABULARY, LENGTH, PERIODS = 40, 48, (6, 20)
LAYERS, HEADS, WIDTH = 2, 4, 64
UPDATES, BATCH, LEARNING_RATE = 1000, 64, 2e-3
# Of the pairs: tokens of a period, pairs, and the place of the token that is looked up.
PERIOD, PAIRS, PLACE = 12, 128, 4
# A head of the second layer whose mean weight on the token after the earlier occurrence is above this is an induction
# head.
INDUCTION = 0.3


def repeated(sequences: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences (B, T) of distinct random tokens that repeat, and where the next token is determined, (B, T)."""
    periods = torch.randint(*PERIODS, (sequences, 1), generator=generator)
    tokens = torch.rand(sequences, VOCABULARY, generator=generator).argsort(-1)
    index = torch.arange(LENGTH)
    return tokens.gather(1, index % periods), index >= periods


def trained(seed: int) -> transformers.GPT2LMHeadModel:
    """Return a model trained to predict the tokens of sequences that repeat."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, UPDATES, pct_start=0.1)
    for _ in range(UPDATES):
        tokens, is_determined = repeated(BATCH, generator)
        logits = model(tokens).logits
        weights = is_determined[:, :-1]
        loss = F.cross_entropy(logits[:, :-1][weights], tokens[:, 1:][weights])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def attention_shares(model: transformers.GPT2LMHeadModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean weights (L, H) on the token before, and on the token after the earlier occurrence."""
    with torch.no_grad(), attent.watch(model) as maps:
        model(tokens)
    weights = torch.stack([part.dense().mean(0) for part in maps.values()])  # (L, H, T, T)
    before = weights.diagonal(-1, -2, -1)[..., 1:].mean(-1)
    after = weights.diagonal(1 - PERIOD, -2, -1)[..., 1:].mean(-1)
    return before, after


def table(values: Tensor) -> str:
    """Return a line for each layer."""
    return "\n".join(f"  layer {layer}   {numbers(row)}" for layer, row in enumerate(values))


def numbers(row: Tensor) -> str:
    """Return the numbers of a row."""
    return "  ".join(f"{value:+.2f}" for value in row.tolist())


def main(seed: int) -> None:
    """Train, and test each claim."""
    begin = time.process_time()
    model = trained(seed)
    seconds = time.process_time() - begin
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens, is_determined = repeated(256, generator)
    with torch.no_grad():
        right = (model(tokens).logits.argmax(-1)[:, :-1] == tokens[:, 1:])[is_determined[:, :-1]]
    print(f"seed {seed}: {UPDATES} updates in {seconds:.0f} s of the processor")
    print(f"right where the next token is determined: {100 * right.float().mean():.1f} %")

    # … A B … X C … A: the next token is B
    drawn = torch.rand(PAIRS, VOCABULARY, generator=generator).argsort(-1)[:, :PERIOD]
    clean = torch.cat([drawn, drawn[:, : PLACE + 1]], 1)
    answers = drawn[:, PLACE + 1], drawn[:, PLACE + 5]
    before, after = attention_shares(model, drawn.repeat(1, 3))
    print(f"\nmean weight on the token before\n{table(before)}")
    print(f"mean weight on the token after the earlier occurrence\n{table(after)}")
    print(f"previous-token head: 0.{before[0].argmax()}; induction head: 1.{after[1].argmax()}")

    with torch.no_grad(), attent.watch(model, inputs=True) as seen:
        logits = model(clean).logits[:, -1]
    right, wrong = (logits.gather(1, answer[:, None])[:, 0].mean() for answer in answers)
    terms = seen.logit_attribution(answers).heads.mean(-1)
    print(f"\nlogit of the right token minus that of another {right - wrong:.2f}; directly from each head")
    print(table(terms))

    # B and C exchanged: what is copied changes
    successors = clean.clone()
    successors[:, [PLACE + 1, PLACE + 5]] = clean[:, [PLACE + 5, PLACE + 1]]
    of_successors = attent.patch(model, clean, successors, answers)
    print(f"\npatching outputs, successors exchanged\n{table(of_successors.effects)}")
    # A and X exchanged: where the induction head looks changes
    predecessors = clean.clone()
    predecessors[:, [PLACE, PLACE + 4]] = clean[:, [PLACE + 4, PLACE]]
    of_predecessors = attent.patch(model, clean, predecessors, answers)
    print(f"patching outputs, predecessors exchanged\n{table(of_predecessors.effects)}")
    receivers = [(1, head) for head in range(HEADS) if after[1, head] > INDUCTION]
    names = ", ".join(f"1.{head}" for _, head in receivers)
    print(f"paths from the heads of layer 0 into those of layer 1 that look there ({names}), predecessors exchanged")
    for into in ("queries", "keys", "values"):
        effects = attent.patch_paths(model, clean, predecessors, answers, receivers, into=into).effects
        print(f"  {into:8}  {numbers(effects[0])}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

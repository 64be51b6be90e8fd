"""Training a language model beside plain PyTorch.

It compares tokens per second, and the loss after the same updates from the same weights.

    benchmarks/language_model.py FILE [--preset tiny] [--pieces 3000] [--tokens 4096] [--window 0] [--rounds 3]
        [--updates 10]

The peer is `nn.TransformerEncoder` with a causal mask, norms before sub-layers and a tied output in a loop like
nanoGPT's: cross entropy of all logits, clipping, AdamW. Both sides train in float32 on the same batches of FILE's lines
or, with --window, of windows of its running text. Speed is measured with dropout 0.1 and alternating sides, losses
without dropout and from copied weights.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _plain_pytorch import PlainLanguageModel
from _sides import head, table
from torch import Tensor, nn
from torch.nn import functional as F

from attent.devices import limit_heap_fragmentation
from attent.models.language_model import LanguageModel
from attent.models.settings import DecoderSettings
from attent.tasks.text_generation.examples import LanguageModelBatch, LanguageModelExamples, RunningText, TextLines
from attent.tasks.text_generation.task import language_model_cross_entropy
from attent.text.batches import BatchSize, BatchStream, Sequences
from attent.text.readers import read_lines
from attent.text.tokenizer import PAD
from attent.text.tokenizers import learn
from attent.training.distributed import Processes
from attent.training.loop import Training
from attent.training.progress import SilentProgress
from attent.training.settings import TrainingSettings

RATE, BETAS, CLIP = 1e-3, (0.9, 0.98), 1.0
# Batches on which both sides are evaluated after their updates.
JUDGED = 5
Update = Callable[[LanguageModelBatch], None]


@torch.no_grad()
def plain_with_weights_of(model: LanguageModel, longest: int) -> PlainLanguageModel:
    """Return a plain PyTorch model with the same weights."""
    plain = PlainLanguageModel(model.settings, model.to_logits.out_features, longest)
    plain.embedding.weight.copy_(model.embedding.tokens.weight)
    layers: list[tuple[Any, Any]] = list(zip(plain.layers.layers, model.decoder.layers, strict=True))
    for theirs, ours in layers:
        attention = ours.self_attention
        projections = (attention.query_projection, attention.key_projection, attention.value_projection)
        theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in projections]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in projections]))
        theirs.self_attn.out_proj.load_state_dict(attention.output.state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward.widen.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())
        theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
        theirs.norm2.load_state_dict(ours.around_feed_forward.norm.state_dict())
    assert plain.layers.norm is not None
    plain.layers.norm.load_state_dict(model.decoder.norm.state_dict())
    return plain


class FixedBatch(Processes):
    """Gives the training loop a chosen batch instead of the next one of its stream."""

    batch: LanguageModelBatch | None = None

    def next_part(self, batches: BatchStream[LanguageModelBatch]) -> tuple[LanguageModelBatch, int]:
        """Return the batch and its number of tokens."""
        return super().next_part(batches) if self.batch is None else (self.batch, self.batch.tokens)


def our_update(model: LanguageModel, data: LanguageModelExamples) -> Update:
    """Return an update function that uses the loop of `attent train`."""
    settings = TrainingSettings(
        updates=2**31, batch_tokens=256, schedule="constant", warmup=0, precision="float32",
        threads=torch.get_num_threads(),
        learning_rate=RATE, betas=BETAS, epsilon=1e-8, clip=CLIP, label_smoothing=0.0,
    )  # fmt: skip
    source = FixedBatch()
    training = Training(
        model,
        data,
        settings,
        dict,
        lambda record: None,
        SilentProgress(),
        None,
        source,
        loss=language_model_cross_entropy,
    )

    def update(batch: LanguageModelBatch) -> None:
        source.batch = batch
        training.train_step()

    return update


def plain_loss(model: PlainLanguageModel, batch: LanguageModelBatch) -> Tensor:
    """Return the mean cross entropy of a batch."""
    return F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)


def plain_update(model: PlainLanguageModel) -> Update:
    """Return an update function as in tutorials."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=RATE, betas=BETAS, weight_decay=0.0)

    def update(batch: LanguageModelBatch) -> None:
        optimizer.zero_grad(set_to_none=True)
        plain_loss(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return update


def compare_speed(
    settings: DecoderSettings, data: LanguageModelExamples, size: int, options: argparse.Namespace
) -> None:
    """Print the tokens per second of both sides: the best round and the median."""
    torch.manual_seed(0)
    model = LanguageModel(settings, size, size)
    plain = plain_with_weights_of(model, int(data.lengths().max()))
    sides: dict[str, Update] = {"attent": our_update(model, data), "nn.TransformerEncoder": plain_update(plain)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    batches = data.stream(BatchSize(tokens=options.tokens), 1)
    for number in range(options.rounds + 1):
        chosen = list(itertools.islice(batches, options.updates))
        tokens = sum(batch.tokens for batch in chosen)
        for name, update in sides.items():
            begin = time.process_time() if options.process_time else time.perf_counter()
            for batch in chosen:
                update(batch)
            end = time.process_time() if options.process_time else time.perf_counter()
            if number:
                rates[name].append(tokens / (end - begin))
    best = max(rates["attent"])
    rows = [
        [name, f"{max(numbers):,.0f}", f"{sorted(numbers)[len(numbers) // 2]:,.0f}", f"{best / max(numbers):.2f}"]
        for name, numbers in rates.items()
    ]
    table(["side", "tokens/s, best round", "tokens/s, median", "attent's best / this"], rows)


def compare_losses(
    settings: DecoderSettings, data: LanguageModelExamples, size: int, options: argparse.Namespace
) -> None:
    """Print the losses of both sides before and after the same updates without dropout."""
    torch.manual_seed(0)
    model = LanguageModel(settings.model_copy(update={"dropout": 0.0}), size, size)
    plain = plain_with_weights_of(model, int(data.lengths().max()))
    batches = data.stream(BatchSize(tokens=options.tokens), 1)
    judged = list(itertools.islice(batches, JUDGED))

    def losses() -> list[str]:
        with torch.no_grad():
            for side in (model, plain):
                side.eval()
            parts = (
                partial(language_model_cross_entropy, model, label_smoothing=0.0, precision="float32"),
                partial(plain_loss, plain),
            )
            means = [
                sum(float(loss(batch)) * batch.tokens for batch in judged) / sum(batch.tokens for batch in judged)
                for loss in parts
            ]
            for side in (model, plain):
                side.train()
        return [f"{mean:.4f}" for mean in means] + [f"{abs(means[0] / means[1] - 1):.2%}"]

    rows = [["before", *losses()]]
    sides = our_update(model, data), plain_update(plain)
    for batch in itertools.islice(batches, options.loss_updates):
        for update in sides:
            update(batch)
    rows.append([f"after {options.loss_updates} updates", *losses()])
    table(["nats a token", "attent", "nn.TransformerEncoder", "difference"], rows)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="lines of text, also .gz")
    parser.add_argument("--preset", default="tiny", choices=DecoderSettings.presets)
    parser.add_argument("--pieces", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=4096, help="a batch, padding included")
    parser.add_argument(
        "--window", type=int, default=0, help="tokens of a window of running text; 0 for lines by themselves"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    parser.add_argument("--loss-updates", type=int, default=100, help="after which losses are compared")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--process-time", action="store_true", help="count the processor's time, beside other programs; on one thread"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    limit_heap_fragmentation()
    lines = [line for line in read_lines(options.file) if line.strip()]
    tokenizer = learn("bpe", lines, options.pieces)
    sequences = Sequences([tokenizer.encode(line) for line in lines])
    data = RunningText(sequences, options.window) if options.window else TextLines(sequences)
    settings = DecoderSettings.model_validate(
        {"preset": options.preset, "norm": "pre", "position": "sinusoidal", "dropout": 0.1}
    )
    title = f"windows of {options.window} tokens" if options.window else "lines"
    head(
        f"Training a language model, {options.preset}, {tokenizer.size:,} pieces, batches of {options.tokens:,} "
        f"tokens, {title}"
    )
    compare_speed(settings, data, tokenizer.size, options)
    print()
    compare_losses(settings, data, tokenizer.size, options)


if __name__ == "__main__":
    main()

"""Text generation with a language model, in new tokens per second, beside plain PyTorch and Hugging Face's GPT-2.

    benchmarks/generate.py RUN [--tokens 64] [--batch 1 8 32] [--rounds 3] [--threads N] [--device cpu]

RUN is a run folder of a language model. attent generates with its compiled step and with its modules, both of which
cache keys and values; `nn.TransformerEncoder` processes the whole text again for each token; GPT-2, if transformers is
installed, caches them. The peers have RUN's sizes and untrained weights. Every side generates greedily, each text from
its beginning to the requested length; the sides alternate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from _plain_pytorch import PlainLanguageModel
from _report import Report, machine_info
from _sides import show
from _speed import NEW_TOKENS, ROUNDS, TEXTS, WARM_UP_TOKENS, rate_table
from _speed import generate as generate_ours

from attent.devices import synchronize
from attent.models.settings import DecoderSettings
from attent.ops.transformer import IncrementalState
from attent.tasks.text_generation.text_generator import load
from attent.text.tokenizer import BOS, PAD

# Generates a number of texts with a number of tokens each.
Side = Callable[[int, int], object]


def make_sides(run: Path, tokens: int, device: torch.device) -> tuple[dict[str, Side], DecoderSettings, list[str]]:
    """Return the sides by name, the model's settings, and notes.

    Args:
        run: the run folder of a language model.
        tokens: the maximum number of new tokens in a text.
        device: the device of every side.

    Raises:
        RunError: the run folder is missing, damaged, or of another task.
    """
    generator = load(run, device)
    settings, pieces = generator.model.settings, generator.tokenizer.size
    sides: dict[str, Side] = {"attent": partial(generate_ours, generator)}
    with torch.inference_mode():
        is_compiled = isinstance(generator.model.start(1), IncrementalState)
    if is_compiled:
        by_modules = load(run, device)
        # a module with a hook is called as a module
        by_modules.model.decoder.layers[0].register_forward_hook(lambda *arguments: None)
        sides["attent, step by modules"] = partial(generate_ours, by_modules)
    plain = PlainLanguageModel(settings, pieces, generator.context or tokens).to(device).eval()
    sides["nn.TransformerEncoder, all again for each token"] = lambda texts, number: plain.generate(
        _begin(texts, device), number
    )
    if find_spec("transformers") is None:
        return sides, settings, ["GPT2LMHeadModel is left out: transformers is not installed"]
    sides["GPT2LMHeadModel.generate, cached keys and values"] = _gpt2_side(settings, pieces, tokens, device)
    return sides, settings, []


def compare(
    run: Path,
    *,
    tokens: int = NEW_TOKENS,
    sizes: Sequence[int] = TEXTS,
    rounds: int = ROUNDS,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure the sides of `make_sides` for each number of texts."""
    sides, settings, notes = make_sides(run, tokens, device)

    def generate(side: Side, texts: int) -> None:
        side(texts, tokens)
        synchronize(device)

    for side in sides.values():
        side(max(sizes), min(tokens, WARM_UP_TOKENS))
    synchronize(device)
    table = rate_table(
        "greedy, new tokens per second",
        {name: partial(generate, side) for name, side in sides.items()},
        sizes,
        lambda size: size * tokens,
        rounds=rounds,
        say=say,
    )
    title = f"Text generation, Transformer {settings.layers} × {settings.width}, {tokens:,} tokens a text"
    return Report(title, machine_info(device), [table], notes)


def _gpt2_side(settings: DecoderSettings, pieces: int, tokens: int, device: torch.device) -> Side:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=pieces,
        n_positions=tokens + 1,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        n_inner=settings.feed_forward,
        activation_function=settings.activation,
        bos_token_id=BOS,
        eos_token_id=None,
        pad_token_id=PAD,
    )
    model: Any = transformers.GPT2LMHeadModel(config)
    model.to(device).eval()

    def generate(texts: int, number: int) -> object:
        begin = _begin(texts, device)
        return model.generate(begin, attention_mask=torch.ones_like(begin), do_sample=False, max_new_tokens=number)

    return generate


def _begin(texts: int, device: torch.device) -> torch.Tensor:
    return torch.full((texts, 1), BOS, device=device)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help="of each text")
    parser.add_argument("--batch", type=int, nargs="+", default=TEXTS, help="texts side by side")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the fastest counts")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report = compare(
        options.run,
        tokens=options.tokens,
        sizes=options.batch,
        rounds=options.rounds,
        device=torch.device(options.device),
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(report)


if __name__ == "__main__":
    main()

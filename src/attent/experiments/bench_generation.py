"""Text generation by a language model, beside plain PyTorch and GPT-2 of Hugging Face in its sizes.

New tokens a second, greedily.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from attent.devices import synchronize
from attent.experiments.machine import machine_info
from attent.experiments.plain_pytorch import PlainLanguageModel
from attent.experiments.report import Column, Report, ResultTable, Row
from attent.models.settings import DecoderSettings
from attent.ops.transformer import IncrementalState
from attent.runs.config import DType
from attent.search.settings import GenerationSettings
from attent.tasks.text_generation.text_generator import TextGenerator, load
from attent.text.tokenizer import BOS, PAD

# Texts that are written side by side, and new tokens of each.
BATCH_SIZES = (1, 8, 32)
NEW_TOKENS = 64
# New tokens of the texts that warm a side up.
WARM_UP_TOKENS = 4
# Writes so many texts of so many tokens each.
Side = Callable[[int, int], object]


def make_sides(
    run: Path, tokens: int, *, device: torch.device | str = "cpu", trust_code: bool = False, dtype: DType | None = None
) -> tuple[dict[str, Side], DecoderSettings, list[str]]:
    """Return the sides by name, the model's settings, and notes.

    The peers have its sizes, and weights as they are made.

    Args:
        run: the folder of a language model.
        tokens: the most new tokens that a text will have.
        device: of every side.
        trust_code: whether the run may name modules to import.
        dtype: the type of the packed weights; the run's own unless given.

    Raises:
        RunError: the run folder is missing or damaged, or of another task.
    """
    generator = load(run, device, trust_code=trust_code, dtype=dtype)
    settings, pieces = generator.model.settings, generator.tokenizer.size
    sides: dict[str, Side] = {"attent": _our_side(generator)}
    with torch.inference_mode():
        is_compiled = isinstance(generator.model.start(1), IncrementalState)
    if is_compiled:
        by_modules = load(run, device, trust_code=trust_code)
        # a module with a hook is called itself
        by_modules.model.decoder.layers[0].register_forward_hook(lambda *arguments: None)
        sides["attent, step by modules"] = _our_side(by_modules)
    plain = PlainLanguageModel(settings, pieces, generator.context or tokens).to(device).eval()
    sides["nn.TransformerEncoder, all again for each token"] = lambda texts, number: plain.generate(
        _begin(texts, device), number
    )
    if find_spec("transformers") is None:
        return sides, settings, ["GPT2LMHeadModel is left out: transformers is not installed"]
    sides["GPT2LMHeadModel.generate, cached keys and values"] = _gpt2_side(settings, pieces, tokens, device)
    return sides, settings, []


def measure(
    sides: Mapping[str, Side],
    tokens: int,
    sizes: Sequence[int],
    rounds: int,
    *,
    device: torch.device | str = "cpu",
    say: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Measure new tokens a second of each side for each number of texts, the sides in turn.

    Of the fastest round and of the median one.
    """
    for side in sides.values():
        side(max(sizes), min(tokens, WARM_UP_TOKENS))
    durations: dict[tuple[str, int], list[float]] = {(name, size): [] for name in sides for size in sizes}
    for number in range(1, rounds + 1):
        for size in sizes:
            for name, side in sides.items():
                say(f"{size} text{'s' if size > 1 else ''}, round {number} of {rounds}: {name}")
                durations[name, size].append(_seconds(side, size, tokens, torch.device(device)))
    rows: list[Row] = []
    for name in sides:
        row: Row = {"side": name}
        for size in sizes:
            row[f"batch {size}"] = size * tokens / min(durations[name, size])
            row[f"batch {size}, median"] = size * tokens / statistics.median(durations[name, size])
        rows.append(row)
    return rows


def compare(
    run: Path,
    *,
    tokens: int = NEW_TOKENS,
    sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = 3,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
    dtype: DType | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure text generation: `make_sides` and `measure` in one call, with their arguments."""
    sides, settings, notes = make_sides(run, tokens, device=device, trust_code=trust_code, dtype=dtype)
    columns = [Column("side", ""), *(Column(f"batch {size}", f"batch {size}", ",.0f") for size in sizes)]
    table = ResultTable(
        "greedy, new tokens per second", columns, measure(sides, tokens, sizes, rounds, device=device, say=say)
    )
    title = f"Text generation, Transformer {settings.layers} × {settings.width}, {tokens:,} tokens a text"
    return Report(title, machine_info(torch.device(device)), [table], notes)


def _seconds(side: Side, texts: int, tokens: int, device: torch.device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    side(texts, tokens)
    synchronize(device)
    return time.perf_counter() - begin


def _our_side(generator: TextGenerator) -> Side:
    # every text has all its tokens, as those of the peers do
    generator.stops_at_line_end = False
    return lambda texts, number: generator.generate([""] * texts, GenerationSettings(max_new_tokens=number))


def _gpt2_side(settings: DecoderSettings, pieces: int, tokens: int, device: torch.device | str) -> Side:
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

    def write(texts: int, number: int) -> object:
        begin = _begin(texts, device)
        return model.generate(begin, attention_mask=torch.ones_like(begin), do_sample=False, max_new_tokens=number)

    return write


def _begin(texts: int, device: torch.device | str) -> torch.Tensor:
    return torch.full((texts, 1), BOS, device=device)

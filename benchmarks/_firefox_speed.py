"""Sentences a second in 8 bits on one core: Firefox's engine (WebAssembly), attent, and CTranslate2.

taskset -c 0 scripts/bench firefox speed --engine ENGINE [--data MULTI30K] [--size tiny] [--sentences 128] [--rounds 2]

The model has the shape of Firefox's tiny ones, with 32,000 rows. CTranslate2 has no SSRU: its decoder has
self-attention, and feed-forward layers so much narrower that a token costs the same multiply-adds (attention's own
products come on top, below 1 % at these lengths). Every source has 25 tokens with </s>, and every translation 25: the
models never end one. The engine translates one sentence a call; the others that, and batches of 64. The best round of
each side counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _firefox_agreement import factors_of, lines_of
from _firefox_models import EOS, LANGUAGES, SIZES, Planted, Size, binary, settings, vocabulary
from _sides import head, table
from torch import nn

from attent.formats.ctranslate2 import specification
from attent.formats.ctranslate2 import vocabulary as vocabulary_of
from attent.models.transformer import Transformer
from attent.runs.folder import Run
from attent.runs.folder import read as read_run
from attent.runs.hugging_face import import_run
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator, load

ROWS, PIECES, LENGTH, BATCH = 32_000, 4_000, 25, 64
NEVER = -100.0


def make(data: Path, size: Size, folder: Path) -> bytes:
    """Write a random model of 8 bits that ends no translation, and return its vocabulary."""
    model = vocabulary(lines_of(data, "train", "en", 29_000), PIECES)
    planted = Planted(size, ROWS, 1, 1, noise=0.1, sharpness=12.0, peak=1.0)
    bias = planted.arrays["decoder_ff_logit_out_b"]
    bias[0, EOS] = bias[0, PIECES:] = NEVER
    factors = factors_of(planted.arrays, size, model, ["A man."])
    folder.mkdir()
    text = settings(size, 1, ROWS)
    (folder / f"model.{LANGUAGES}.intgemm.alphas.bin").write_bytes(binary(planted.arrays, text, factors))
    (folder / f"vocab.{LANGUAGES}.spm").write_bytes(model)
    return model


def sources(data: Path, model: bytes, count: int) -> list[str]:
    """Return texts of exactly as many pieces, with </s>, as every source has."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    words, found = " ".join(lines_of(data, "train", "en", 29_000)).replace(".", "").split(), list[str]()
    start = 0
    while len(found) < count:
        texts = (" ".join(words[start:end]) for end in range(start + 1, len(words)))
        text = next(text for text in texts if len(processor.EncodeAsIds(text)) >= LENGTH - 1)
        found += [text] if len(processor.EncodeAsIds(text)) == LENGTH - 1 else []
        start += len(text.split())
    return found


def multiply_adds(model: Transformer) -> tuple[int, int]:
    """Return the multiply-adds of a model's matrices for a token of the source, and for one of the target."""
    layers = {
        name: layer.weight.numel()
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and not isinstance(layer, nn.Embedding)
    }
    of_memory = ("cross_attention.key_projection", "cross_attention.value_projection")
    source = sum(count for name, count in layers.items() if name.startswith("encoder") or name.endswith(of_memory))
    return source, sum(layers.values()) - source


def with_self_attention(run: Run) -> Run:
    """Return a random model with self-attention in the decoder, and as many multiply-adds for each token."""
    ours = run.model
    assert isinstance(ours, Transformer)
    width, layers = ours.settings.width, ours.settings.decoder_layers
    config = ours.settings.model_copy(update={"self_attention": "attention", "position": "sinusoidal"})
    model = Transformer(config, ROWS + 2, ROWS + 2)
    surplus = multiply_adds(model)[1] - multiply_adds(ours)[1]
    hidden = config.feed_forward - round(surplus / (2 * width * layers))
    for layer in model.decoder.layers:
        layer.feed_forward.widen, layer.feed_forward.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
    with torch.no_grad():
        model.to_logits.bias.copy_(ours.to_logits.bias)
    return replace(run, model=model.eval())


def peer(run: Run, folder: Path) -> Any:
    """Return CTranslate2's translator of a run."""
    import ctranslate2

    spec = specification(run)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.Translator(str(folder), compute_type="int8", inter_threads=1, intra_threads=1)


def fastest(sides: dict[str, Callable[[], int]], sentences: int, rounds: int) -> dict[str, float]:
    """Return the sentences a second of each side, in turns; each returns its number of tokens, which is checked."""
    best = dict.fromkeys(sides, 0.0)
    for _ in range(rounds):
        for name, work in sides.items():
            begin = time.perf_counter()
            tokens = work()
            best[name] = max(best[name], sentences / (time.perf_counter() - begin))
            assert tokens == sentences * LENGTH, f"{name}: {tokens} tokens"
    return best


def engine_rate(folder: Path, texts: Sequence[str], engine: Path, scratch: Path) -> float:
    """Return the engine's sentences a second, one a call."""
    lines, out, script = scratch / "lines.txt", scratch / "out.json", Path(__file__).with_name("_firefox_engine.mjs")
    lines.write_text("\n".join(texts), encoding="utf-8")
    files = next(folder.glob("*.bin")), lines, out, "int8shiftAlphaAll", "0", next(folder.glob("*.spm"))
    subprocess.run(["node", script, engine, *files], check=True, env=os.environ | {"LENGTH_FACTOR": "1.0"})
    return len(texts) / json.loads(out.read_text("utf-8"))["seconds"]


def compare(translator: Translator, theirs: Any, texts: Sequence[str], rounds: int) -> dict[str, float]:
    """Return the sentences a second of attent and CTranslate2, by name and sentences a call."""
    length, names = (
        SearchSettings(minimum_length=LENGTH, maximum_length=LENGTH),
        vocabulary_of(translator.source_tokenizer),
    )

    def ours(size: int) -> int:
        found = [translator.search(texts[at : at + size], length) for at in range(0, len(texts), size)]
        return sum(len(each[0].tokens) for batch in found for each in batch)

    def peers(size: int) -> int:
        count = 0
        for at in range(0, len(texts), size):
            # its time has the tokenization too, as ours
            tokens = [[names[token] for token in translator.read(text).ids] for text in texts[at : at + size]]
            found = theirs.translate_batch(
                tokens, beam_size=1, max_batch_size=size, min_decoding_length=LENGTH, max_decoding_length=LENGTH
            )
            count += sum(len(each.hypotheses[0]) for each in found)
        return count

    sides = {"attent": ours, "CTranslate2": peers}
    works = {f"{name}, {size}": partial(side, size) for name, side in sides.items() for size in (1, BATCH)}
    return fastest(works, len(texts), rounds)


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ATTENT_DATA", ".")) / "multi30k")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with TemporaryDirectory() as name:
        home = Path(name)
        model = make(options.data, SIZES[options.size], home / "model")
        texts = sources(options.data, model, options.sentences)
        import_run(home / "model", home / "run", fixed_activations=True)
        run, translator = read_run(home / "run"), load(home / "run")
        assert isinstance(run.model, Transformer)
        other = with_self_attention(run)
        assert isinstance(other.model, Transformer)
        counts = [multiply_adds(side) for side in (run.model, other.model)]
        theirs = peer(other, home / "peer")
        rates = compare(translator, theirs, texts, options.rounds)
        # the engine is another process, a round of its own each time
        few = texts[: len(texts) // 2]
        rates["engine, 1"] = max(
            engine_rate(home / "model", few, options.engine.resolve(), home) for _ in range(options.rounds)
        )
    head(f"Sentences a second in 8 bits on one core, {options.size}, {ROWS:,} rows, {LENGTH} tokens each")
    rows = [
        [
            "Firefox's engine, WebAssembly (int8shiftAlphaAll)",
            "1",
            f"{rates['engine, 1']:.1f}",
            *map("{:,}".format, counts[0]),
        ],
        *(
            [f"{side} (int8)", size, f"{rates[f'{side}, {size}']:.1f}", *map("{:,}".format, counts[index])]
            for index, side in enumerate(("attent", "CTranslate2"))
            for size in ("1", str(BATCH))
        ),
    ]
    table(["", "sentences a call", "sentences/s", "multiply-adds per source token", "per target token"], rows)

"""A model of opus-mt's size (6 + 6 layers, 512 and 2,048 features, 58,000 pieces).

It compares attent, CTranslate2 and Hugging Face's `generate`.

    benchmarks/opus.py FOLDER [--threads 2] [--lines 64] [--rounds 3] [--dtypes float32,int8]

A Marian folder with random weights is written to FOLDER, unless it exists; attent imports it and exports it to
CTranslate2, so that all three have the same weights. Sources have 8 to 40 random pieces, and every translation is
forced to 24, so that nothing depends on the random weights. The engines alternate, each with several batch sizes, and
the best size of each counts. Memory is the peak of a process that loads an engine and translates, beyond that of a
process that has only loaded the libraries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _sides import head, peak, table  # noqa: F401 (peak is asked for by name)

LENGTH, PIECES = 24, 58_000
BATCHES = {1: (8, 16, 32, 64), 4: (4, 8, 16, 32)}
SEARCHES = {"greedy": 1, "beam 4": 4}
Translate = Callable[[Sequence[Sequence[int]], int, int], None]


def make(folder: Path) -> None:
    """Write the Marian folder, its import, and the export of the import."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
    from random_translators import learn, write_vocabulary  # pyright: ignore[reportMissingImports]
    from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

    model_folder = folder / "marian"
    if not model_folder.exists():
        model_folder.mkdir(parents=True)
        pieces = [
            piece for side in ("source", "target") for piece in learn(model_folder / f"{side}.spm", "unigram", 1_000)
        ]
        names = [*dict.fromkeys(pieces)]
        ids = write_vocabulary(
            model_folder / "vocab.json", [*names, *(f"filler{number}" for number in range(PIECES - len(names) - 3))], 0
        )
        files: dict[str, Any] = {"vocab": "vocab.json", "source_spm": "source.spm", "target_spm": "target.spm"}
        paths: dict[str, Any] = {name: str(model_folder / file) for name, file in files.items()}
        MarianTokenizer(**paths).save_pretrained(model_folder)
        torch.manual_seed(0)
        special: dict[str, Any] = {
            "pad_token_id": len(ids) - 1,
            "decoder_start_token_id": len(ids) - 1,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
        }
        sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 6) | dict.fromkeys(
            ("encoder_ffn_dim", "decoder_ffn_dim"), 2048
        )
        config = MarianConfig(
            vocab_size=len(ids), d_model=512, encoder_attention_heads=8, decoder_attention_heads=8,
            max_position_embeddings=512,
            activation_function="swish", scale_embedding=True, **sizes, **special,
        )  # fmt: skip
        model: Any = MarianMTModel(config)
        with torch.no_grad():
            model.model.shared.weight[-1] = 0
        model.generation_config = GenerationConfig(**special, bad_words_ids=[[len(ids) - 1]])
        model.save_pretrained(model_folder)
    if not (folder / "run").exists():
        subprocess.run(
            [sys.executable, "-m", "attent", "import", str(model_folder), "--out", str(folder / "run")],
            check=True,
            stdout=sys.stderr,
        )
    if not (folder / "run" / "export" / "ctranslate2").exists():
        from attent.formats.exporting import export

        export(folder / "run", "ctranslate2")


def sources(count: int) -> list[list[int]]:
    """Return random ids of Marian's vocabulary, without the end token."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(8, 41, (count,), generator=generator).tolist()
    return [torch.randint(2, PIECES - 2, (length,), generator=generator).tolist() for length in lengths]


def attent_engine(folder: Path, dtype: Any, threads: int) -> Translate:
    """Load attent's engine."""
    from attent.search.settings import SearchSettings
    from attent.tasks.loading import load

    torch.set_num_threads(threads)
    translator = load(folder / "run") if dtype == "float32" else load(folder / "run", dtype=dtype)
    size = translator.source_tokenizer.size

    def translate(rows: Sequence[Sequence[int]], beam: int, batch: int) -> None:
        settings = SearchSettings(beam=beam, minimum_length=LENGTH, maximum_length=LENGTH)
        # attent's ids: any except special ones, and the end token
        own = [[4 + token % (size - 4) for token in row] + [3] for row in rows]
        translator.search_encoded(own, [()] * len(own), settings, batch)

    return translate


def ctranslate2_engine(folder: Path, dtype: str, threads: int) -> Translate:
    """Load CTranslate2, which distributes batches or a batch's products over threads."""
    import ctranslate2

    (export,) = {path.parent for path in (folder / "run").rglob("model.bin")}
    engines = [
        ctranslate2.Translator(str(export), compute_type=dtype, inter_threads=inter, intra_threads=threads // inter)
        for inter in {1, threads}
    ]  # fmt: skip
    names = json.loads(
        (
            export / "source_vocabulary.json"
            if (export / "source_vocabulary.json").exists()
            else export / "shared_vocabulary.json"
        ).read_text()
    )
    fastest: dict[tuple[int, int], int] = {}

    def run(engine: Any, tokens: list[list[str]], beam: int, batch: int) -> None:
        engine.translate_batch(
            tokens,
            max_batch_size=batch,
            beam_size=beam,
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
            length_penalty=1,
        )

    def translate(rows: Sequence[Sequence[int]], beam: int, batch: int) -> None:
        tokens = [[names[4 + token % (len(names) - 4)] for token in row] + [names[3]] for row in rows]
        if (beam, batch) not in fastest:
            seconds = []
            for engine in engines:
                begin = time.perf_counter()
                run(engine, tokens, beam, batch)
                seconds.append(time.perf_counter() - begin)
            fastest[beam, batch] = seconds.index(min(seconds))
            return
        run(engines[fastest[beam, batch]], tokens, beam, batch)

    return translate


def hugging_face_engine(folder: Path, dtype: str, threads: int) -> Translate:
    """Load Hugging Face's model."""
    from transformers import MarianMTModel

    torch.set_num_threads(threads)
    model: Any = MarianMTModel.from_pretrained(folder / "marian").eval()

    @torch.inference_mode()
    def translate(rows: Sequence[Sequence[int]], beam: int, batch: int) -> None:
        ordered = sorted(rows, key=len)
        for begin in range(0, len(ordered), batch):
            part = [[*row, 0] for row in ordered[begin : begin + batch]]
            longest = max(map(len, part))
            ids = torch.tensor([row + [PIECES - 1] * (longest - len(row)) for row in part])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in part])
            model.generate(
                ids, attention_mask=mask, num_beams=beam, min_new_tokens=LENGTH + 1, max_new_tokens=LENGTH + 1
            )

    return translate


ENGINES = {"attent": attent_engine, "CTranslate2": ctranslate2_engine, "Hugging Face": hugging_face_engine}


def measure(folder: Path, dtypes: Sequence[str], lines: int, rounds: int, threads: int) -> None:
    """Measure and print the lines per second of all engines, which alternate."""
    rows = sources(lines)
    engines = {
        f"{name} {dtype}": build(folder, dtype, threads)
        for name, build in ENGINES.items()
        for dtype in dtypes
        if name != "Hugging Face" or dtype == "float32"
    }
    for search, beam in SEARCHES.items():
        best: dict[str, tuple[float, int]] = dict.fromkeys(engines, (0.0, 0))
        for _ in range(rounds + 1):  # the first round warms up
            for batch in BATCHES[beam]:
                for name, translate in engines.items():
                    begin = time.perf_counter()
                    translate(rows, beam, batch)
                    rate = lines / (time.perf_counter() - begin)
                    best[name] = max(best[name], (rate, batch))
        print(f"\n{search}, {LENGTH} pieces each, {threads} threads\n")
        table(
            ["engine", "lines a second", "at batches of"],
            [[name, f"{rate:.1f}", str(batch)] for name, (rate, batch) in best.items()],
        )


def memory(folder: Path, name: str, dtype: str, threads: int) -> float:
    """Return the MiB that an engine takes in a separate process beyond the libraries."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import opus; from pathlib import Path\n"
        "import torch, ctranslate2, transformers, attent.tasks.loading, attent.search.settings\n"
        "from transformers import MarianMTModel\n"
        f"before = opus.peak(); translate = opus.ENGINES[{name!r}](Path({str(folder)!r}), {dtype!r}, {threads})\n"
        "translate(opus.sources(16), 4, 8); print(opus.peak() - before)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()[-1]
    )


def main() -> None:
    """Create missing files, measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", default="float32,int8")
    options = parser.parse_args()
    dtypes = options.dtypes.split(",")
    make(options.folder)
    head("A model of opus-mt's size")
    weights = (options.folder / "marian" / "model.safetensors").stat().st_size / 2**20
    print(f"float32 weights: {weights:.0f} MiB\n")
    cases = [(name, dtype) for name in ENGINES for dtype in dtypes if name != "Hugging Face" or dtype == "float32"]
    taken = [(f"{name} {dtype}", memory(options.folder, name, dtype, options.threads)) for name, dtype in cases]
    table(
        ["engine", "memory, MiB", "of the float32 weights"],
        [[name, f"{mib:.0f}", f"{mib / weights:.2f}"] for name, mib in taken],
    )
    measure(options.folder, dtypes, options.lines, options.rounds, options.threads)


if __name__ == "__main__":
    main()

"""Live pages (attent export RUN --to html) beside Python: the same tokens, logits and maps, and the size of files.

    scripts/bench live_pages --out FOLDER [--kinds dates blanks …] [--seeds 0 1 2] [--inputs 300]

For each kind of run and each seed, a short training on one thread, unless FOLDER has the run already. Its page's engine
runs under node, with 16-bit and with 8-bit weights; Python computes with the same rounded weights. Test inputs are
translated, continued, filled or classified by greedy search: tokens (or classes, or words for blanks) are counted as
the same if all of an input's are, and differences are the largest of all inputs. The longest inputs and unknown
characters are among them. Corpora: `attent data phrases`, `examples/make_canvases.py` and scikit-learn's digits;
multi30k needs ATTENT_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _live_engine import Comparison, Pair, difference, translated
from _report import machine_info, machine_sentence

from attent.formats.html import page_of
from attent.runs.folder import Run, read
from attent.search.settings import GenerationSettings
from attent.tasks.caption.captioner import Captioner, picture_inputs
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import INPUTS, Inputs, PictureRows
from attent.tasks.classification.pictures import load_digits
from attent.tasks.dates.generated import regenerate
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.text_generation.text_generator import of_run as generator_of
from attent.tasks.translation.translator import forced_maps, of_run
from attent.text.readers import read_lines
from attent.text.tokenizer import BOS, EOS
from attent.views.build_scene import build_scene

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = ["--set", "model.layers=2", "--set", "model.width=64", "--set", "model.feed_forward=128"]
# New tokens of a continuation.
LENGTH = 20
# Questions that node answers at a time.
CHUNK = 20
STRANGE = "⟨?⟩ ☃"


def trainings(data: Path) -> dict[str, list[str]]:
    """Return the options of `attent train` for each kind of run."""
    phrases, canvases = data / "phrases", data / "canvases"
    rnn = ["--config", f"{CONFIGS}/phrases-rnn.toml", "--data", f"{phrases}", "--set", "training.updates=300"]
    lines = ["--text", f"{phrases}/train.txt", "--valid-text", f"{phrases}/valid.txt"]
    captions = ["--set", f"captions.source={canvases}", "--set", "training.updates=300"]
    return {
        "dates": ["--corpus", "dates", "--set", "training.minutes=2"],
        "phrases, bahdanau": rnn,
        "phrases, luong": [*rnn, "--set", "model.attention=luong"],
        "language model": [
            "--task", "text-generation", *lines, *SMALL, "--set", "model.position=rotary", "--set", "model.norm=pre",
            "--set", "training.updates=300",
        ],
        "blanks": [
            "--config", f"{CONFIGS}/phrases-blanks.toml", "--data", f"{phrases}", "--set", "training.updates=500",
        ],
        "classifier": [
            "--task", "classify", "--labelled", f"{phrases}/train-subjects.tsv", "--valid-labelled",
            f"{phrases}/valid-subjects.tsv", *SMALL, "--set", "training.updates=300",
        ],
        "digits": ["--config", f"{CONFIGS}/digits.toml", "--set", "training.updates=400"],
        "canvases": ["--config", f"{CONFIGS}/canvases.toml", *captions],
        "canvases, rnn": ["--config", f"{CONFIGS}/canvases-rnn.toml", *captions],
        "multi30k": [
            "--config", f"{CONFIGS}/multi30k-tiny.toml", "--data", f"{os.environ.get('ATTENT_DATA')}/multi30k",
            "--set", "training.updates=60", "--set", "training.validate_every=1000",
        ],
    }  # fmt: skip


def attent(*arguments: str) -> None:
    """Run a command of attent on one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "attent", *arguments], env=environment, check=True, stdout=sys.stderr)


def texts_of(kind: str, path: Path, data: Path, count: int) -> list[str]:
    """Return test inputs of a run that reads texts, the longest first, and one with unknown characters."""
    if kind == "dates":
        corpus = regenerate(path, read(path).config.corpus)
        texts = [pair.source for pairs in corpus.held_out.values() for pair in pairs]
    elif kind == "multi30k":
        texts = [*read_lines(Path(os.environ["ATTENT_DATA"]) / "multi30k/tok/test_2016_flickr.lc.norm.tok.en.gz")]
    else:
        texts = [*read_lines(data / "phrases" / "test.txt")]
    texts = sorted(dict.fromkeys(texts), key=len, reverse=True)
    # a third are the longest, the others evenly spaced
    longest, rest = texts[: count // 3], texts[count // 3 :]
    texts = longest + rest[:: max(len(rest) // max(count - len(longest), 1), 1)]
    if kind == "language model":
        return [" ".join(text.split()[: 1 + number % 4]) for number, text in enumerate(texts)][:count]
    if kind == "blanks":
        words = [text.split() for text in texts[: count - 1]]
        marked = [
            " ".join("[MASK]" if place == number % len(line) else word for place, word in enumerate(line))
            for number, line in enumerate(words)
        ]
        return [*marked, f"the {STRANGE} sees [MASK]"]
    return [*texts[: count - 1], f"{STRANGE} {texts[0]}"]


def questions(kind: str, run: Run, path: Path, data: Path, count: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield questions for the page, each with what Python reads."""
    if INPUTS in run.files and run.config.task in ("classify", "caption") and "text" not in run.tokenizers:
        if kind == "digits":
            pixels = load_digits().pixels[-count:]
        else:
            captioner = Captioner(run.model, picture_inputs(run.files), run.tokenizers["target"])
            names = [line.split("\t")[0] for line in read_lines(data / "canvases" / "test.tsv")]
            pixels = captioner.data([data / "canvases" / name for name in names[:count]]).pixels
        for picture in pixels:
            values = picture if picture.dtype == np.float32 else picture.astype(np.float32) / np.float32(255)
            height, width, channels = picture.shape
            asked = {"height": height, "width": width, "channels": channels, "values": values.ravel().tolist()}
            yield {"call": "classify" if kind == "digits" else "write", "input": asked}, picture[None]
        return
    call = {"fill-mask": "fill", "classify": "classify"}.get(run.config.task, "write")
    for text in texts_of(kind, path, data, count):
        yield {"call": call, "input": text, "options": {"length": LENGTH} if call == "write" else {}}, text


def compare(run: Run, given: Any, answer: dict[str, Any]) -> Comparison:
    """Compare an answer of the page with Python's, for the same weights."""
    task, model = run.config.task, run.model
    assert "error" not in answer, (given, answer["error"])
    if task == "translate":
        return translated(of_run(run), given, answer)
    if task == "fill-mask":
        filler = FillMask(model, run.tokenizers["text"])
        predictions = filler.fill(given)
        words = [[guess["word"] for guess in blank["guesses"]] for blank in answer["blanks"]]
        line = filler._tokenize(given)  # pyright: ignore[reportPrivateUsage]
        expected = filler.logits([line.tokens], [0] * len(words), line.mask_positions).detach().numpy()
        logits = np.array([blank["logits"] for blank in answer["blanks"]])[:, 4:]
        is_same = [[guess.word for guess in each.guesses] for each in predictions] == words
        return Comparison(
            is_same, _largest(logits - expected), difference(answer["maps"], build_scene(filler.map(given)))
        )
    if task == "classify":
        classifier = Classifier(model, Inputs.read(run.files[INPUTS]), run.tokenizers.get("text"))
        examples = given if isinstance(given, np.ndarray) else [given]
        expected = classifier.log_probs(classifier.examples(classifier.data(examples)))[0]
        logits = torch.from_numpy(answer["logits"].astype(np.float64)).log_softmax(-1)
        is_same = classifier.labels[int(expected.argmax())] == answer["best"][0]["label"]
        scene = build_scene(classifier.maps(examples))
        return Comparison(is_same, _largest((logits - expected).numpy()), difference(answer["maps"], scene))
    tokens = [step["token"] for step in answer["steps"]]
    logits = np.array([step["logits"] for step in answer["steps"]])
    with torch.no_grad():
        if task == "text-generation":
            generator = generator_of(run.config.task, run)
            (generated,) = generator.generate([given], GenerationSettings(max_new_tokens=LENGTH))
            read_tokens = [BOS, *generator.encode(given), *tokens]
            first = len(read_tokens) - len(tokens) - 1
            expected = model.output(model(torch.tensor([read_tokens])))[0, first:-1].numpy()
            shown = read_tokens[1 : len(answer["maps"]["self.0"][0])]
            scene = build_scene(generator.map_of_tokens(shown))
            return Comparison(
                [*generated.tokens] == tokens, _largest(logits - expected), difference(answer["maps"], scene)
            )
        captioner = Captioner(model, picture_inputs(run.files), run.tokenizers["target"])
        caption, rows = captioner.caption(given)[0], PictureRows(captioner.data(given), captioner.inputs)
        source, lengths = rows.read(np.zeros(1, int), None), torch.from_numpy(rows.lengths)
        maps, _ = forced_maps(model, lambda: model.encode(source, lengths), tokens, gradients=False)
        memory = model.encode(source, lengths)
        expected = model.output(model.decode(memory, torch.tensor([[BOS, *tokens[:-1]]])))[0].numpy()
    is_same = captioner.tokenizer.decode(tokens) == caption and tokens[-1] == EOS
    return Comparison(is_same, _largest(logits - expected), difference(answer["maps"], build_scene(maps)))


def _largest(differences: np.ndarray) -> float:
    return float(np.abs(differences).max(initial=0))


def measure(kind: str, path: Path, data: Path, count: int, quantization: str | None) -> dict[str, Any]:
    """Compare a page with Python for so many inputs."""
    run = read(path)
    pair = Pair(run, quantization)
    asked = [*questions(kind, pair.run, path, data, count)]
    results: list[Comparison] = []
    for begin in range(0, len(asked), CHUNK):
        chunk = asked[begin : begin + CHUNK]
        answers = pair.ask(*(question for question, _ in chunk))
        results += [compare(pair.run, given, answer) for (_, given), answer in zip(chunk, answers, strict=True)]
    size, weights = len(page_of(run, str(path), quantization).encode()), pair.weights.nbytes
    return {
        "kind": kind, "seed": int(path.name.rpartition("-")[2]), "weights": quantization or "float16",
        "inputs": len(results), "same": sum(result.is_same for result in results),
        "logits": max(result.logits for result in results), "maps": max(result.maps for result in results),
        "page": size, "stored": weights,
    }  # fmt: skip


def table(cells: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table with a line for each kind and type of weights, over its seeds."""
    lines = [
        "| run | weights | inputs | the same | logits | maps | page, KB | stored weights, KB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((cell["kind"], cell["weights"]) for cell in cells)
    for key in keys:
        own = [cell for cell in cells if (cell["kind"], cell["weights"]) == key]
        total = {name: sum(cell[name] for cell in own) for name in ("inputs", "same")}
        worst = {name: max(cell[name] for cell in own) for name in ("logits", "maps", "page", "stored")}
        lines.append(
            f"| {key[0]} | {key[1]} | {len(own)} × {own[0]['inputs']} | {total['same']} of {total['inputs']} | "
            f"{worst['logits']:.1e} | {worst['maps']:.1e} | {worst['page'] / 1000:,.0f} | "
            f"{worst['stored'] / 1000:,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--inputs", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    out: Path = options.out
    for name in ("phrases", "canvases"):
        if not (out / name).is_dir():
            attent("data", name, "--out", str(out / name))
    cells = list[dict[str, Any]]()
    known = trainings(out)
    for kind in options.kinds or known:
        for seed in options.seeds:
            path = out / "runs" / f"{kind.replace(', ', '-').replace(' ', '-')}-{seed}"
            if not (path / "model.safetensors").is_file():
                sets = ["--set", f"training.seed={seed}", "--set", "training.threads=1", "--replace"]
                attent("train", *known[kind], *sets, "--out", str(path))
            for quantization in (None, "int8"):
                file = out / f"{path.name}-{quantization or 'float16'}-{options.inputs}.json"
                if not file.is_file():
                    begin = time.perf_counter()
                    file.write_text(
                        json.dumps(measure(kind, path, out, options.inputs, quantization)), encoding="utf-8"
                    )
                    print(f"{file.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
                cells.append(json.loads(file.read_text(encoding="utf-8")))
    print(f"{machine_sentence(machine_info())}\n\n{table(cells)}")


if __name__ == "__main__":
    main()

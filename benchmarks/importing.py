"""Imported translators compared with transformers.

Translations are compared with those of `generate`, counted over random models of every layout.

    benchmarks/importing.py [--sources 60] [--ends 0.5] [--length-penalty 0] [--variants "Marian, shared,,NLLB"]

Each model has random weights with peaked outputs (scripts/random_translators.py). For each source, the two translations
are equal; different within the margin, so that either may be the best (1e-3 between both scores in beam search, in nats
per token if the penalty is 1, and between the two best logits in greedy search); or different. transformers' beam
search uses early_stopping="never", which is attent's exact stopping rule; translations that reach the maximum length
are counted separately, since the two libraries end them differently. attent never writes the padding token, which
transformers forbids only for Marian: if random weights prefer it, translations differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _sides import head, table

from attent.runs.hugging_face import FAMILIES
from attent.runs.hugging_face.folder import SourceFolder
from attent.search.settings import SearchSettings
from attent.tasks.loading import load

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import random_translators  # pyright: ignore[reportMissingImports]

MARIAN: dict[str, dict[str, Any]] = {
    "Marian, shared": {},
    "Marian, end token 17": {"eos": 17, "seed": 1},
    "Marian, vocabularies apart": {"separate": True, "eos": 5},
    "Marian, untied": {"tie_word_embeddings": False},
    "Marian, apart and untied": {"separate": True, "tie_word_embeddings": False, "activation_function": "gelu"},
    "Marian, learned positions": {"learned": True},
    "Marian, unscaled, 1 + 3 layers": {
        "scale_embedding": False,
        "activation_function": "relu",
        "encoder_layers": 1,
        "decoder_layers": 3,
    },
}
M2M100: dict[str, dict[str, Any]] = {
    "M2M100": {},
    "NLLB": {"nllb": True},
    "NLLB, untied": {"nllb": True, "tie_word_embeddings": False, "activation_function": "swish"},
}
LANGUAGES = {"M2M100": ("en", "fr"), "NLLB": ("eng_Latn", "fra_Latn"), "NLLB, untied": ("eng_Latn", "deu_Latn")}
LIMIT, MARGIN = 60, 1e-3
COLUMNS = ["equal", "other, below the margin", "other", "at the limit"]


def compare(name: str, sources: list[str], folder: Path, ends: float, penalty: float) -> list[str]:
    """Return the cells of a model's row."""
    from transformers import AutoTokenizer

    write: Any = random_translators.marian if name in MARIAN else random_translators.m2m100
    theirs = write(folder, ends=ends, **(MARIAN | M2M100)[name])
    languages = LANGUAGES.get(name, (None, None))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours = load(folder, source_language=languages[0], target_language=languages[1])
    target = FAMILIES[theirs.config.model_type](SourceFolder(folder), *languages).vocabularies[1]
    special = target.special
    # transformers' ids by attent's ids
    ids = [special.pad, special.unk, special.start, special.eos, *target.ordinary]
    marks = [mark for mark in (f"__{languages[1]}__", languages[1]) if mark in target.names.values()]
    forced = tokenizer.convert_tokens_to_ids(marks[0]) if languages[1] else None
    cells = [name]
    for beam in (1, 4):
        counts = dict.fromkeys(COLUMNS, 0)
        settings = SearchSettings(beam=beam, length_penalty=penalty, length_form="length", maximum_length=LIMIT)
        for text, found in zip(sources, ours.search(sources, settings), strict=True):
            counts[outcome(theirs, tokenizer(text)["input_ids"], found[0], ids, beam, forced, penalty)] += 1
        cells += [str(counts[column]) for column in COLUMNS]
    return cells


def outcome(
    theirs: Any, source: list[int], found: Any, ids: list[int], beam: int, forced: int | None, penalty: float
) -> str:
    """Return the column in which a source is counted."""
    options: dict[str, Any] = {"early_stopping": "never", "length_penalty": penalty} if beam > 1 else {}
    result = theirs.generate(
        torch.tensor([source]), num_beams=beam, max_length=LIMIT + 2, forced_bos_token_id=forced,
        return_dict_in_generate=True, output_scores=True, output_logits=True, **options,
    )  # fmt: skip
    written, eos = result.sequences[0].tolist()[1:], theirs.generation_config.eos_token_id
    length = written.index(eos) if eos in written else LIMIT
    # in greedy search, the tokens before the limit do not depend on how it is handled
    if beam > 1 and max(length, len(found.tokens)) >= LIMIT:
        return COLUMNS[3]
    if written[:length] == [ids[token] for token in found.tokens]:
        return COLUMNS[0]
    if beam > 1:
        return COLUMNS[1] if abs(float(result.sequences_scores[0]) - found.score) <= MARGIN else COLUMNS[2]
    margins = [float(pair[0] - pair[1]) for pair in (step[0].topk(2).values for step in result.logits)]
    return COLUMNS[1] if min(margins) <= MARGIN else COLUMNS[2]


def main() -> None:
    """Count and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=60)
    parser.add_argument("--variants", default=",,".join(MARIAN | M2M100), help="separated by two commas")
    parser.add_argument(
        "--ends", type=float, default=1 / 6, help="share of greedy steps at which the end token is the likeliest"
    )
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, help="by which lengths' powers scores of beam search are divided"
    )
    options = parser.parse_args()
    sources = random_translators.sources(options.sources, seed=1)
    head("Imported translators against transformers")
    rows = []
    for name in options.variants.split(",,"):
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(name, sources, Path(folder) / "model", options.ends, options.length_penalty))
    totals = [str(sum(int(row[number]) for row in rows)) for number in range(1, 9)]
    table(
        ["model", *(f"greedy: {column}" for column in COLUMNS), *(f"beam 4: {column}" for column in COLUMNS)],
        [*rows, ["all", *totals]],
    )


if __name__ == "__main__":
    main()

"""Commands that are refused: exit code 2, one line that says why, and nothing written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

COMMANDS = {
    "wlak": "No such command 'wlak'",
    "data how": "No such command 'how'",
    "describe nowhere": "nowhere is not a run folder",
    "quantize .": "is not a run folder",
    "data phrases --out new --held-out 1": "Invalid value for '--held-out'",
    "describe": "Missing argument 'run'",
    "score RUN nowhere.tsv": "nowhere.tsv is not a file",
    "score RUN ''": "'' is not a file",
    "vectors RUN": "Missing option '--out'",
    "vectors RUN --out a.csv": "--out must end in .vec or .txt, got 'a.csv'",
    "vectors RUN --out a.txt --side middle": "unknown side 'middle' (known: source, target)",
    "vectors RUN --out nowhere/a.txt": "nowhere/.a.txt.part cannot be written: ",
    # a run of another task
    "translate FILLING text": "RUN fills blanks: attent fill RUN TEXT",
    "translate GENERATING text": "RUN generates text: attent generate RUN TEXT",
    "score FILLING pairs.tsv": "RUN fills blanks: attent fill RUN TEXT",
    "export FILLING --to onnx": "RUN fills blanks: attent fill RUN TEXT",
    "export GENERATING --to ctranslate2": "RUN generates text: attent generate RUN TEXT",
    "fill RUN a": "RUN translates: attent translate RUN TEXT",
    "fill GENERATING [MASK]": "RUN generates text: attent generate RUN TEXT",
    "generate RUN a": "RUN translates: attent translate RUN TEXT",
    "classify GENERATING a": "RUN generates text: attent generate RUN TEXT",
}

TRAINING = {
    "train": "choose what to train with one of --train FILE, --corpus dates, --text FILE, --images SOURCE, --images",
    "train --corpus datse": "did you mean 'dates'",
    "train --config nowhere.toml": "nowhere.toml cannot be read",
    "train --config SETTINGS --set training.learningrate=1": "did you mean 'learning_rate'",
    "train --config SETTINGS --set model.heads=3": "heads must divide width",
    "train --config SETTINGS --minutes -1": "training.minutes",
    "train --config SETTINGS --corpus dates": "choose what to train",
    "train --config SETTINGS --out pairs.tsv/run": "cannot be written",
    "train --train nowhere.tsv": "nowhere.tsv",
    "train --train pairs.tsv --corpus dates": "choose what to train",
    "train --corpus dates --preset tiny": "--preset needs --train",
    "train --task fill-mask": "choose what to train with one of --text FILE, --config FILE.toml and --resume RUN",
    "train --task fill-mask --corpus dates --out run": "--task fill-mask does not match the settings",
    "train --task classify": "choose what to train with one of --images SOURCE, --labelled FILE, --config",
    "train --task classify --images nowhere": "there are no pictures at nowhere",
    "train --images digits --labelled a.tsv": "[images] and for [labelled] cannot be used in one run",
    "train --task translate --images digits": "these files are for --task classify, not for --task translate",
    "train --labelled nowhere.tsv": "nowhere.tsv cannot be read",
    "train --task clasify --labelled a.tsv": "'clasify'; did you mean 'classify'? (known: answer, caption, classify",
    "train --resume x --out y": "a resumed run keeps its settings: omit --out",
    **{f"train --resume x --{name} a": f"keeps its corpus: omit --{name}" for name in ("train", "images", "size")},
    **{f"train --resume x --{name} a": f"omit --{name}" for name in ("valid-target", "text", "labelled", "freeze")},
    **{f"train --resume x --{name} 3": f"keeps its settings: omit --{name}" for name in ("seed", "data", "set")},
    "train --resume x --target-language de": "a resumed run keeps its settings: omit --target-language",
    # the names of files, before anything is suggested by what they hold
    "train --train train.zh": "the name of a file of pairs must end in .tsv or .jsonl (optionally with .gz), got",
    "train --train pairs.tsv --valid valid.de.gz": "must end in .tsv or .jsonl (optionally with .gz), got valid.de.gz",
    # what stands beside a corpus is none
    "train --size 8": "--size needs --images, or a --config with [images]",
    "train --config SETTINGS --size 8": "--size needs --images, or a --config with [images]",
    "train --valid-text 8": "--valid-text needs --text, or a --config with [lines]",
    "train --valid-labelled 8": "--valid-labelled needs --labelled, or a --config with [labelled]",
    "train --valid 8": "--valid needs --train, or a --config with [text]",
    "train --config SETTINGS --replay 8": "--replay needs --train, or a --config with [text]",
    "train --corpus dates --data .": "--data is where the files of [text] or [captions] or [lines] or [images] or",
    "train --train a.tsv --data none": "not a folder",
    "train --train empty.tsv": "empty.tsv: empty",
    "train --task text-generation --text empty.tsv": "empty.tsv: empty",
    "train --train-source a": "--train-source a needs --train-target, a file with the targets, line for line",
    "train --train-target b": "--train-target b needs --train-source, a file with the sources, line for line",
    "train --train-source a --train-target b --valid-source a": "--valid-source a needs --valid-target, ",
    "train --train-source lines.txt --train-target lines.txt --source-language Chinese": (
        "text.source_language: a language must be a code such as en, zh or pt-BR, got 'Chinese'"
    ),
    "train --corpus dates --target-language en": "--source-language and --target-language need pairs: --train, or ",
    "train --train-source a --log tensorbord": "Invalid value for '--log': ",
}

TRANSLATING = {
    "translate": "Missing argument",
    "translate RUN nowhere.txt": "there is no file nowhere.txt; ",
    "translate RUN .": ". is a folder, neither a file nor text",
    "translate RUN a --temperature 2": "are for sampling",
    "translate RUN a --sample --beam 2": "sampling uses no beam",
    "translate RUN a --beam 1000000000000": "--beam must be at most 10000, got 1000000",
    "translate RUN a --length-penalty inf": "--length-penalty must be a finite number, got inf",
    "translate RUN a --max-length 0": "--max-length must be at least 1, got 0",
    "translate RUN a --sample --top-p 1.5": "--top-p must be at most 1, got 1.5",
    "translate RUN a --sample --temperature 0": "--temperature must be above 0, got 0.0",
    "translate RUN a --format xml": "'text', 'jsonl'",
    "translate RUN a --glossary a --sample": "give --glossary or --sample, not both",
    "translate RUN a --resume": "--resume needs the file to resume: --out FILE",
    "translate RUN letter.odt": "letter.odt is a document: name its translation with --out FILE.odt",
    "translate RUN a --detokenize": "--detokenize needs the target language, which this run does not name",
    "translate RUN a --detokenize --target-language en --alignments": "--alignments refers to words before",
    "translate RUN a --detokenize --target-language English": "such as en, zh or pt-BR, got 'English'",
    "translate RUN a --target-language en": "--target-language goes with --detokenize",
    "export RUN": "Missing option '--to'",
    "export RUN --to tensorrt": "'ctranslate2', 'onnx'",
    "export RUN --to onnx --quantization int8": "in float32 only; quantization needs --to ctranslate2",
    "serve RUN --languages en": "--languages must be SOURCE:TARGET for each run, such as en:de, got 'en'",
    "serve RUN --languages en:de --languages de:en": "give --languages once for each run, got 2 for 1 runs",
    "serve RUN --require-api-key": "--require-api-key needs keys: give --api-keys-file FILE",
    "serve RUN --languages en:de --api-keys-file none": "--api-keys-file none cannot be read",
    "serve RUN --languages en:de --host 203.0.113.1": "cannot be listened on",
}

JUDGING = {
    "evaluate RUN --source a": "needed together",
    "evaluate RUN --lowercase": "--lowercase is for --source FILE",
    "evaluate RUN --tokenize char": "--tokenize is for --source FILE",
    "evaluate RUN --target-language zh": "--target-language is for --source FILE",
    "evaluate RUN --text a --source b": "--text is for a run that fills blanks or generates text, not for one that",
    "evaluate RUN --source lines.txt --target train.zh": "got 2 lines and 1 references",
    "evaluate RUN --source lines.txt --target lines.txt --tokenize nine": "did you mean 'none'",
    "evaluate RUN --images a": "--images is for a run that captions or classifies, not for one that",
    "evaluate CLASSIFYING --beam 2": "--beam is for a run that translates or captions, not for one that classifies",
    "evaluate FILLING": "RUN fills blanks, and needs a text to be evaluated on: attent evaluate RUN --text FILE",
    "ablate RUN lines.txt": "lines to translate need their references: --target FILE",
    "ablate RUN - --target lines.txt": "which are read more than once: standard input cannot be used",
    "ablate RUN lines.txt --target lines.txt --beam 3": "--beam is for --metric bleu",
    "ablate RUN lines.txt --target lines.txt --metric accuracy": "'accuracy' (known: bleu, loss)",
    "ablate RUN nowhere --target lines.txt": "nowhere cannot be read: No such file or directory",
    "ablate GENERATING lines.txt --target a": "--target is for a run that translates",
}

LOOKING = {
    "show RUN 'fr | 3 mars 2026' --layer 2": "layer must be from 0 to 1, got 2",
    "show RUN 'fr | 3 mars 2026' --head 2": "head must be from 0 to 1, got 2",
    f"show RUN a --head {'9' * 5000}": "--head must be a number from 0, mean or all",
    "show RUN 'fr | 3 mars 2026' --kind corss": "did you mean 'cross'",
    "show RUN 'fr | 3 mars 2026' --out pairs.tsv/map.png": "cannot be written",
    "show FILLING 'a [MASK]' --translation b": "--translation is for runs that translate",
    "fill FILLING 'the dog'": "there is no [MASK] or _____ in 'the dog': write one of them for each blank",
    "show FILLING ''": "a text without tokens has no attention to show",
    "fill FILLING 'the un[MASK]'": "[MASK] stands for a whole word: put spaces around it in ' un[MASK]'",
    "fill FILLING [MASK] --layer 1": "layer must be from 0 to 0, got 1",
    "fill FILLING [MASK] --head 2": "head must be from 0 to 1, got 2",
    "generate GENERATING 'the bird'": "'bird' is unknown to this model: its vocabulary lacks the word or sign",
    "generate GENERATING the --top-p 2": "--top-p must be at most 1, got 2.0",
    "generate GENERATING the --temperature 0": "--temperature must be above 0, got 0.0",
    "generate GENERATING the --temperature nan": "--temperature must be a finite number, got nan",
    "generate GENERATING the --top-k 0": "--top-k must be at least 1, got 0",
    "generate GENERATING the --seed -1": "--seed must be at least 0, got -1",
    "generate GENERATING the --max-new-tokens 0": "--max-new-tokens must be at least 1, got 0",
    "generate GENERATING the --copies 99999999": "--copies must be at most 10000, got 99999999",
    "explore RUN --file nowhere.txt": "--file nowhere.txt is not a file",
    "explore nowhere": "nowhere is not a run folder",
    "explore RUN --port 70000": "65535",
    "explore RUN --text a --file lines.txt": "give --text or --file, not both",
}

WALKING = {
    "walk --bogus": "No such option: --bogus",
    "walk a b c": ": quote the text",
    "walk a --layer 0": "--layer needs a run",
    "walk The cat": "there is no run folder The: quote a text of several words",
    "walk 'a b' --heads x": "Invalid value for '--heads'",
    "walk 'a b' --heads 3": "heads must divide the width, 4, got 3",
    "walk 'a b' --score aditive": "did you mean 'additive'",
    "walk 'a b' --normalizer sotfmax": "did you mean 'softmax'",
    "walk 'a b' --normalizer topk": "--normalizer topk needs values that a command cannot give: use entmax15, hard, ",
    "walk 'a b' --normalizer top_k": "in Python: attent.walk(TEXT, normalizer=TopK(k))",
    "walk 'a b' --mask padding": "mask padding needs numbers: padding:5",
    "walk 'a b' --mask selected": "in Python: attent.walk(TEXT, mask=Selected(indices))",
    "walk 'a b' --position sinus": "did you mean 'sinusoidal'",
    "walk 'a b' --position rotary --width 3": "the width must be even, got 3",
    "walk 'a b' --cross ' '": "at least one word",
    "walk 'a b' --vectors nowhere.txt": "nowhere.txt",
    "walk 'a b' --layer half": "--layer must be a number from 0, whole, or whole:0, got 'half'",
    "walk 'a b' --out walk.txt": "--out must end in .html, got 'walk.txt'",
    "walk RUN": "is a run folder, which needs a text",
    "walk RUN a --cross b": "--cross is for a text without a run",
    "walk RUN a --no-scale": "--no-scale is for a text without a run",
    "walk RUN '3 mars 2026' --layer 9": "layer must be from 0 to 1, got 9",
    "walk RUN '3 mars 2026' --head 9": "head must be from 0 to 1, got 9",
    "walk RUN ''": "empty source",
}

ALIGNING = {
    "align RUN nowhere.tsv": "nowhere.tsv is not a file",
    "align RUN pairs.tsv --layer 2": "layer must be from 0 to 1, got 2",
    "align RUN pairs.tsv --head 2": "head must be from 0 to 1, got 2",
    "align RUN pairs.tsv --head all": "--head must be a number from 0 or mean, got 'all'",
    "align RUN pairs.tsv --about reed": "unknown token that a row is about 'reed'; did you mean 'read'?",
    "align RUN pairs.tsv --threshold 1.5": "less than or equal to 1",
    "align RUN pairs.tsv --symmetrization union": "combines the links of two runs: name the other with --reverse",
    "align RUN pairs.tsv --reverse . --symmetrization onion": "did you mean 'union'?",
    "align RUN pairs.tsv --reverse . --tokens": "--tokens cannot be used with --reverse",
    "align RUN pairs.tsv --best-head --layer 0": "--best-head chooses the layer and the head: omit --layer, --head and",
    "align RUN pairs.tsv --best --reverse .": "--best chooses for one run: omit --reverse",
    "align RUN pairs.tsv --best --threshold 0.5": "--best without --gold chooses by the largest weights: omit",
    "align RUN pairs.tsv --one-based": "needs a file of links: --gold FILE",
    "align RUN pairs.tsv --gold nowhere": "nowhere is not a file",
    "align RUN --gold - --source - --target x": "standard input can contain the pairs or their links, not both",
    "align RUN --source x": "--source FILE and --target FILE go together",
    "align RUN pairs.tsv --source - --target -": "or --source and --target, not both",
}

CASES = COMMANDS | TRAINING | TRANSLATING | JUDGING | LOOKING | WALKING | ALIGNING


@pytest.mark.parametrize("command", CASES, ids=lambda command: command[:60])
def test_a_command_is_refused_in_one_line(
    attent, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"pairs.tsv": "a\tb\nc d\te\n", "train.zh": "a\n", "valid.de.gz": "b\n", "lines.txt": "one\ntwo\n"}
    for name, text in (files | {"empty.tsv": "", "letter.odt": ""}).items():
        Path(name).write_text(text, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    folders = {"RUN": "run_folder", "FILLING": "filling_folder", "GENERATING": "generating_folder"}
    fixtures = folders | {"CLASSIFYING": "classifying_folder", "SETTINGS": "settings_file"}
    words = shlex.split(command)
    values = {word: str(request.getfixturevalue(fixtures[word])) for word in words if word in fixtures}
    done = attent(*(values.get(word, word) for word in words))
    # some say first what they do
    announced = ("train --config", "train --t", "evaluate RUN --source lines")
    assert (done.code, done.out, done.err[-1][:8]) == (2, [], "attent: ")
    assert len(done.err) <= 1 + command.startswith(announced)
    line = done.err[-1]
    for value in values.values():
        line = line.replace(value, "RUN")
    assert CASES[command] in line
    assert sorted(tmp_path.rglob("*")) == before

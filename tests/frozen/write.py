"""Write the corpora and the run folders that the tests beside this file load.

Every run is made by `attent train` alone.

    cd tests/frozen && python write.py corpora documents && python write.py dates pairs …

It works in the folder where it stands, so that the runs name their corpora by relative paths. What it wrote once is
kept in git: a later version of the package has to read these folders, and must not write them anew. The numbers in
golden/*.json are written by the tests themselves, where ATTENT_FREEZE=1 is set.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

NOUNS = {
    "dog": ("chien", "m", "barks"),
    "cat": ("chat", "m", "purrs"),
    "mouse": ("souris", "f", "squeaks"),
    "cow": ("vache", "f", "moos"),
    "horse": ("cheval", "m", "neighs"),
    "hen": ("poule", "f", "clucks"),
}
ADJECTIVES = {
    "green": ("vert", "verte"),
    "small": ("petit", "petite"),
    "black": ("noir", "noire"),
    "sad": ("triste", "triste"),
}
VERBS = {
    "sees": ("voit", "sense"),
    "hears": ("entend", "sense"),
    "likes": ("aime", "mood"),
    "finds": ("trouve", "deed"),
}
ARTICLES = {"the": ("le", "la"), "a": ("un", "une")}

TRAINING = """[training]
precision = "float32"
threads = 1
schedule = "constant"
warmup = 20
learning_rate = 0.01
seed = 5
"""
STACK = "width = 16\nfeed_forward = 24\nheads = 2\ndropout = 0.05\n"
TRANSFORMER = f'[model]\nkind = "transformer"\n{STACK}encoder_layers = 1\ndecoder_layers = 1\n'
ENCODER = f"[model]\n{STACK}layers = 2\n"
PAIRS = '[text]\ntrain = "pairs.tsv"\n'
DATES = """[dates]
locales = ["en", "fr"]
training_pairs = 1500
validation_pairs = 20
held_out_dates = 60
held_out_pairs = 20
held_out_combinations = 2
"""
LINES = 'task = "text-generation"\n[lines]\ntrain = "lines.txt"\n'
BLANKS = 'task = "fill-mask"\n[lines]\ntrain = "lines.txt"\n'
CLASSIFY = 'task = "classify"\n'
RNN = f'{PAIRS}tokenizer = "word"\n[model]\nkind = "rnn"\nembedding_width = 12\nwidth = 16\nattention = '
SHARED = 'position = "rotary"\nnorm = "pre"\nshare_embeddings = "all"\n'
AVERAGED = 'batch_tokens = 256\naveraging = "ema"\nema_decay = 0.9\nvalidate_every = 100\n'
# Of each run: its settings, and its updates.
RUNS = {
    "dates": (f"{DATES}{TRANSFORMER}{TRAINING}batch_pairs = 32\n", 900),
    "pairs": (f"{PAIRS}shared = true\nvocabulary = 300\n{TRANSFORMER}{SHARED}{TRAINING}{AVERAGED}", 300),
    "bahdanau": (f'{RNN}"bahdanau"\n{TRAINING}batch_pairs = 16\n', 500),
    "luong": (f'{RNN}"luong"\ncell = "lstm"\n{TRAINING}batch_pairs = 16\n', 500),
    "none": (f'{RNN}"none"\n{TRAINING}batch_pairs = 16\n', 500),
    "blanks": (f'{BLANKS}{ENCODER}position = "learned"\nmaximum_length = 32\n{TRAINING}batch_pairs = 16\n', 400),
    # without dropout, whose numbers differ between processors
    "lines": (
        f'{LINES}tokenizer = "word"\n{ENCODER.replace("0.05", "0.0")}position = "rotary"\n{TRAINING}batch_pairs = 16\n',
        300,
    ),
    "texts": (
        (
            f'{CLASSIFY}[labelled]\ntrain = "labelled.tsv"\ntokenizer = "char"\nvalidation = 0.1\n'
            f"{ENCODER}{TRAINING}batch_pairs = 16\n"
        ),
        250,
    ),
    "vectors": (f'{CLASSIFY}[images]\nsource = "vectors.npz"\ntest = 0.2\n{ENCODER}{TRAINING}batch_pairs = 16\n', 120),
    "pictures": (
        (
            f'{CLASSIFY}[images]\nsource = "pictures.npz"\npatch = 4\nshift = 1\ntest = 0.2\n'
            f"{ENCODER}{TRAINING}batch_pairs = 16\n"
        ),
        120,
    ),
}
# Those that keep the checkpoint from which training can go on.
GOING_ON = ("pairs", "bahdanau", "blanks", "texts", "lines")


def sentence(draw: random.Random) -> tuple[str, str, str]:
    """A sentence, its translation, and what kind of verb it has."""
    verb = draw.choice([*VERBS])
    english, french = zip(*(phrase(draw) for _ in range(2)), strict=True)
    written, kind = VERBS[verb]
    return f"{english[0]} {verb} {english[1]}", f"{french[0]} {written} {french[1]}", kind


def phrase(draw: random.Random) -> tuple[str, str]:
    """An article, perhaps an adjective, and a noun, in both languages."""
    noun, article, adjective = draw.choice([*NOUNS]), draw.choice([*ARTICLES]), draw.choice([*ADJECTIVES, "", ""])
    french, gender, _ = NOUNS[noun]
    form = 0 if gender == "m" else 1
    after = f" {ADJECTIVES[adjective][form]}" if adjective else ""
    return " ".join(filter(None, (article, adjective, noun))), f"{ARTICLES[article][form]} {french}{after}"


def corpora() -> None:
    """Sentences of a small grammar, sequences of vectors, and pictures of stripes."""
    draw = random.Random(7)
    values = {built[0]: built for built in (sentence(draw) for _ in range(360))}
    lines: dict[str, list[str]] = {"pairs.tsv": [], "labelled.tsv": [], "lines.txt": []}
    for english, french, kind in values.values():
        noun = draw.choice([*NOUNS])
        lines["pairs.tsv"].append(f"{english}\t{french}")
        lines["labelled.tsv"].append(f"{english}\t{kind}")
        lines["lines.txt"].append(f"{english} and the {noun} {NOUNS[noun][2]} .")
    for name, written in lines.items():
        Path(name).write_text(
            "".join(f"{line}\n" for line in written[: 320 if name == "pairs.tsv" else 200]), encoding="utf-8"
        )
    numbers = np.random.default_rng(7)
    classes = np.arange(60) % 3
    x = numbers.normal(size=(60, 5, 3)).astype(np.float32).round(2)
    x[np.arange(60), numbers.integers(0, 3, 60), classes] += 4
    np.savez_compressed("vectors.npz", x=x, y=classes, lengths=3 + np.arange(60) % 3)
    lit = (np.arange(8) + classes[:, None]) % 3 == 0
    images = np.where((classes == 1)[:, None, None], lit[:, :, None], lit[:, None, :])
    images = np.broadcast_to(images, (60, 8, 8)) * 200 + numbers.integers(0, 40, (60, 8, 8))
    np.savez_compressed(
        "pictures.npz", images=images.astype(np.uint8), y=np.array(["across", "down", "apart"])[classes]
    )


def documents() -> None:
    from docx import Document
    from odfdo import Document as OpenDocument
    from odfdo import Header, Paragraph

    folder = Path("documents")
    folder.mkdir(exist_ok=True)
    head, first, second = "the small dog", "a cat likes the dog. the cow sees a hen.", "the horse hears the horse"
    marked = f"<p>{first.replace('dog', '<b>dog</b>')}<br>{second}</p><pre>a dog</pre>"
    texts = {
        "txt": f"{head}\r\n\r\n  {first}\n{second}",
        "md": f"# {head}\n\n{first.replace('likes', '**likes**')}\n\n- {second}\n\n    a dog\n",
        "srt": f"1\n00:00:01,000 --> 00:00:02,000\n<i>{head}</i>\n\n"
        f"2\n00:00:03,000 --> 00:00:04,500\n{first}\n{second}\n",
        "html": f"<!doctype html>\n<title>{head}</title>\n<h1 class=x>{head}</h1>\n{marked}",
    }
    for ending, text in texts.items():
        (folder / f"letter.{ending}").write_bytes(text.encode())
    word = Document()
    word.add_heading(head, 1)
    word.add_paragraph("a cat ").add_run("likes the dog").bold = True
    word.add_paragraph(second)
    word.add_table(1, 1).cell(0, 0).text = first
    word.save(str(folder / "letter.docx"))
    opened = OpenDocument("text")
    opened.body.clear()
    for part in (Header(1, head), Paragraph(first), Paragraph(second)):
        opened.body.append(part)
    opened.save(folder / "letter.odt")


def command(name: str, out: str, updates: int) -> list[str]:
    settings = Path("settings", f"{name}.toml")
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"{RUNS[name][0]}updates = {RUNS[name][1]}\n", encoding="utf-8")
    return [sys.executable, "-m", "attent", "train", "--config", str(settings), "--updates", str(updates), "--out", out]


def write(name: str) -> None:
    """Train a run, and keep of it what the tests need."""
    folder = Path("runs", name)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(command(name, str(folder), RUNS[name][1]), check=True)
    if name not in GOING_ON:
        shutil.rmtree(folder / "checkpoints")


def interrupted() -> None:
    """A Transformer whose training was interrupted by Ctrl-C, and which is therefore unfinished."""
    folder = Path("runs", "unfinished")
    shutil.rmtree(folder, ignore_errors=True)
    process = subprocess.Popen([*command("pairs", str(folder), 100_000), "--set", "training.save_every=50"])
    while process.poll() is None and not (folder / "checkpoints").is_dir():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait()


def main() -> None:
    """Write what the arguments name."""
    for name in sys.argv[1:]:
        {"corpora": corpora, "documents": documents, "unfinished": interrupted}.get(
            name, lambda name=name: write(name)
        )()


if __name__ == "__main__":
    main()

"""attent demo: train on sentences or on dates, evaluate, translate and draw."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from attent.cli.options import AUTO, Given, Offer, device_of
from attent.cli.output import say, use_color, write
from attent.errors import refuse
from attent.setting import Help

OUT = {"words": Path("runs") / "words-demo", "dates": Path("runs") / "dates-demo"}
PAGE = "attention.html"
Training = Annotated[
    Given[Any], Offer("attent.training.settings", "TrainingSettings", ("minutes", "seed", "device"), overrides=True)
]
# Their subjects do not occur with these verbs in training.
SENTENCES = ("the black dog sings", "the cat sat on the mat")


def demo(
    training: Training,
    out: Annotated[
        Path | None, Help("Output folder; runs/words-demo or runs/dates-demo, which is replaced, unless given.")
    ] = None,
    dates: Annotated[bool, Help("Train on dates in fourteen languages instead, in two minutes.")] = False,
    date: Annotated[
        list[str] | None, Help('Date to translate with --dates, such as "fr | mardi 3 mars 2026"; repeatable.')
    ] = None,
) -> None:
    """Train a Transformer on English sentences and their French translations, in half a minute.

    Then evaluate it, translate sentences such as the black dog sings, and save its attention as a page.
    """
    from attent.formats.html import write_page
    from attent.tasks import settings
    from attent.tasks.dates.generated import DATES
    from attent.tasks.overrides import override, resolve_corpus
    from attent.tasks.phrases.corpus import phrases, write_phrases
    from attent.tasks.recipe import follow
    from attent.tasks.translation.evaluation import exact_match
    from attent.tasks.translation.translator import load
    from attent.views.labels import pad, width
    from attent.views.panel import panel_of
    from attent.views.terminal import heat_map

    refuse((date and not dates, "--date needs --dates"))
    device, name = device_of(training.values.get("device", AUTO)), "dates" if dates else "words"
    run_settings, folder = override(settings.demo(name), **training.values), out or OUT[name]
    parts = {} if dates else phrases()
    if parts:
        data = folder.with_name(f"{folder.name}-data")
        write_phrases(parts, data)
        run_settings = resolve_corpus(run_settings, data)
        say(f"training on {len(parts['train']):,} sentences, into {folder}")
    else:
        corpus = run_settings.dates
        say(f"training on {corpus.training_pairs:,} dates in {len(corpus.locale_names)} locales, into {folder}")
    results = follow(run_settings, folder, replace=out is None)
    translator = load(folder, device)
    examples = texts = (*DATES, *(date or ())) if dates else SENTENCES
    if parts:
        english, french = zip(*((sentence.english, sentence.french) for sentence in parts["test"]), strict=True)
        results = {
            "of sentences whose subject is new to its verb": {
                "exact_match": exact_match(translator.translate(english), french)
            }
        }
        # short ones, of which SENTENCES are the first
        examples = [text for text in english if len(text) < 40][:8]
    for text, translation in zip(texts, translator.translate(texts), strict=True):
        write(f"{pad(text, max(map(width, texts)), left=True)}  →  {translation}")
    print("\nIts attention while it writes:\n")
    print(heat_map(panel_of(translator.map(texts[0])), color=use_color()), "\n")
    print("exact match " + ", ".join(f"{scores['exact_match']:.1f} % {name}" for name, scores in results.items()))
    _print_commands(folder, texts[0], "it | 3 marzo 2026" if dates else texts[0])
    live = write_page(folder, folder / PAGE, examples=examples)
    print(f"\nOpen {live.resolve().as_uri()} in a browser: it computes every layer and head for what you type.")


def _print_commands(folder: Path, text: str, source: str) -> None:
    """Print what to do next, calling the command as it was called."""
    program = sys.argv[0] if Path(sys.argv[0]).stem == "attent" and not shutil.which("attent") else "attent"
    print(f'\nNext:\n  {program} translate {folder} "{source}"\n  {program} show {folder} "{text}" --head all')
    print(f'  {program} describe {folder}\n  {program} walk {folder} "{text}"')

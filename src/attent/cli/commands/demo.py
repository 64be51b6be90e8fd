"""attent demo: train on dates or on sentences, evaluate, translate and draw."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from attent.cli.options import AUTO, Given, Offer, device_of
from attent.cli.output import say, use_color, write
from attent.errors import refuse
from attent.setting import Help

OUT = {"dates": Path("runs") / "dates-demo", "words": Path("runs") / "words-demo"}
PAGE = "attention.html"
Training = Annotated[
    Given[Any], Offer("attent.training.settings", "TrainingSettings", ("minutes", "seed", "device"), overrides=True)
]
# Their subjects do not occur with these verbs in training.
SENTENCES = ("the black dog sings", "the cat sat on the mat")


def demo(
    training: Training,
    out: Annotated[
        Path | None, Help("Output folder; runs/dates-demo or runs/words-demo, which is replaced, unless given.")
    ] = None,
    date: Annotated[list[str] | None, Help('Date to translate, such as "fr | mardi 3 mars 2026"; repeatable.')] = None,
    words: Annotated[bool, Help("Train on English sentences and their French translations.")] = False,
) -> None:
    """Train a Transformer on dates in fourteen languages, evaluate it, translate dates and show its attention.

    With --words, it translates English sentences into French, such as the black dog sings.
    """
    from attent.tasks import settings
    from attent.tasks.dates.generated import DATES
    from attent.tasks.overrides import override, resolve_corpus
    from attent.tasks.phrases.corpus import phrases, write_phrases
    from attent.tasks.recipe import follow
    from attent.tasks.translation.evaluation import exact_match
    from attent.tasks.translation.translator import load
    from attent.views.labels import pad, width
    from attent.views.pages.page import page
    from attent.views.panel import panel_of
    from attent.views.terminal import heat_map

    refuse((words and date, "--date is for the demo of dates, without --words"))
    device, name = device_of(training.values.get("device", AUTO)), "words" if words else "dates"
    run_settings, folder = override(settings.demo(name), **training.values), out or OUT[name]
    parts = phrases() if words else {}
    if words:
        data = folder.with_name(f"{folder.name}-data")
        write_phrases(parts, data)
        run_settings = resolve_corpus(run_settings, data)
        say(f"training on {len(parts['train']):,} sentences, into {folder}")
    else:
        dates = run_settings.dates
        say(f"training on {dates.training_pairs:,} dates in {len(dates.locale_names)} locales, into {folder}")
    results = follow(run_settings, folder, replace=out is None)
    translator = load(folder, device)
    if words:
        english, french = zip(*((sentence.english, sentence.french) for sentence in parts["test"]), strict=True)
        results = {"held-out subjects of verbs": {"exact_match": exact_match(translator.translate(english), french)}}
    texts = SENTENCES if words else (*DATES, *(date or ()))
    column = max(map(width, texts))
    pairs = zip(texts, translator.translate(texts), strict=True)
    write("\n".join(f"{pad(text, column, left=True)}  →  {translation}" for text, translation in pairs))
    maps = translator.map(texts[0])
    print(f"\nIts attention while it writes:\n\n{heat_map(panel_of(maps), color=use_color())}\n")
    print(f"Every layer and head: {page(maps, title=texts[0]).save(folder / PAGE)}\n\nNext:")
    for command in (
        f'translate {folder} "{SENTENCES[0] if words else "it | 3 marzo 2026"}"',
        f'show {folder} "{texts[0]}" --head all',
        f"describe {folder}",
        f'walk {folder} "{texts[0]}"',
    ):
        print(f"  attent {command}")
    print()
    print("exact match " + ", ".join(f"{scores['exact_match']:.1f} % {name}" for name, scores in results.items()))

"""attent demo: train on dates, evaluate, translate and draw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from attent.cli.options import AUTO, Device, device_of
from attent.cli.output import say, use_color, write
from attent.setting import Help

if TYPE_CHECKING:
    from attent.tasks.translation.translator import Translator

OUT = Path("runs") / "dates-demo"
PICTURES = "pictures"
# Spelled as in Unicode CLDR, with the narrow space before the Russian "г."
DATES = (
    "fr | mardi 3 mars 2026",
    "en | Tuesday, March 3, 2026",
    "de | Dienstag, 3. März 2026",
    "ru | вторник, 3 марта 2026 г.",
    "el | Τρίτη 3 Μαρτίου 2026",
    "ar_EG | الثلاثاء، ٣ مارس ٢٠٢٦",
    "mr | मंगळवार, ३ मार्च, २०२६",
    "ja | 2026年3月3日火曜日",
    "ko | 2026년 3월 3일 화요일",
    "30 settembre 1987",
)
# Dates to draw, in scripts that matplotlib's default font covers.
DRAWN = (DATES[0], DATES[4])


def demo(
    out: Annotated[Path | None, Help(f"Output folder; {OUT.as_posix()}, which is replaced, unless given.")] = None,
    minutes: Annotated[float | None, Help("Training time in minutes; about two unless given.")] = None,
    seed: Annotated[int | None, Help("Seed of the weights and of the order of the pairs.")] = None,
    date: Annotated[list[str] | None, Help('Date to translate, such as "fr | mardi 3 mars 2026"; repeatable.')] = None,
    device: Device = AUTO,
) -> None:
    """Train a Transformer on dates in fourteen languages, evaluate it, translate dates and show its attention."""
    from attent.tasks import settings
    from attent.tasks.overrides import override
    from attent.tasks.recipe import follow
    from attent.tasks.translation.translator import load
    from attent.views.labels import pad, width
    from attent.views.panel import panel_of
    from attent.views.terminal import heat_map

    run_settings = override(settings.demo(), minutes=minutes, seed=seed, device=device)
    torch_device, folder = device_of(device), out or OUT
    dates = run_settings.dates
    say(f"training on {dates.training_pairs:,} dates in {len(dates.locale_names)} locales, into {folder}")
    results = follow(run_settings, folder, replace=out is None)
    translator = load(folder, torch_device)
    texts = (*DATES, *(date or ()))
    column = max(map(width, texts))
    pairs = zip(texts, translator.translate(texts), strict=True)
    write("\n".join(f"{pad(text, column, left=True)}  →  {translation}" for text, translation in pairs))
    print(
        "\nIts attention while it writes each character:\n\n"
        f"{heat_map(panel_of(translator.map(DRAWN[0])), color=use_color())}\n"
    )
    _draw(translator, folder / PICTURES)
    print("Next:")
    for command in (
        f'translate {folder} "it | 3 marzo 2026"',
        f'show {folder} "{DRAWN[0]}" --head all',
        f"describe {folder}",
        f'walk {folder} "{DRAWN[0]}"',
    ):
        print(f"  attent {command}")
    print()
    print("exact match " + ", ".join(f"{scores['exact_match']:.1f} % {name}" for name, scores in results.items()))


def _draw(translator: Translator, folder: Path) -> None:
    from attent.errors import ArgumentError, AttentError
    from attent.views.panel import head_panels_of, panel_of
    from attent.views.picture import picture

    try:
        for number, text in enumerate(DRAWN, start=1):
            maps = translator.map(text)
            picture(panel_of(maps), folder / f"cross-attention-{number}.png")
            picture(head_panels_of(maps), folder / f"cross-attention-{number}-heads.png")
    except ArgumentError:
        raise
    except AttentError as error:
        say(f"no pictures: {error}")
        return
    print(f"Pictures of the attention: {', '.join(str(path) for path in sorted(folder.glob('*.png')))}\n")

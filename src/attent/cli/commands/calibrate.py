"""attent calibrate: learn from held-out pairs how far translations can be trusted."""

from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TypedLoading
from attent.cli.output import say
from attent.setting import Help


def calibrate(
    run: RunFolder,
    loading: TypedLoading,
    source: Annotated[Path, Help("Held-out lines to translate, also .gz.")],
    target: Annotated[Path, Help("References of --source, line by line.")],
) -> None:
    """Learn the confidence of a translator from held-out pairs, and store it with the run.

    The run translates the lines, and a logistic regression learns which translations are usable: those that equal their
    reference, if at least a third do, or else those whose chrF2 is at or above the median. A word is right if it occurs
    in the reference. AUC is the probability that a usable translation gets the larger number, by cross-validation.

    Use lines that the run was not trained on, of the kind to be translated. attent translate --confidence and attent
    serve then tell the confidence; training the run further requires another calibration.
    """
    from attent.tasks.translation import confidence
    from attent.tasks.translation.translator import load
    from attent.text.readers import read_with_references

    lines, references = read_with_references(source, target)
    translator = loading.tool(run, load)
    say(f"translating {len(lines):,} lines of {source}")
    calibration, figures = confidence.calibrate(translator, lines, references)
    calibration.write(run)
    print("\n".join(figures))

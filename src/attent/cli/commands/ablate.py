"""attent ablate: the heads of a run, ranked by how much worse it is without each."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import Beam, Json, Loading, RunFolder
from attent.cli.output import say, write
from attent.errors import refuse
from attent.setting import Bound, Help

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attent.alignment.ablation import Ablation, HeadCost


class HeadChanges(StrEnum):
    """Replacements of a head's weights."""

    zero = "zero"
    uniform = "uniform"
    mean = "mean"


def ablate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="Lines to translate, lines of text, or labeled examples; also .gz.")],
    search: Beam,
    loading: Loading,
    target: Annotated[str | None, Help("References of the lines to translate.")] = None,
    metric: Annotated[
        str | None, Help("Metric to rank heads by; the run's first unless given.", "loss|bleu|accuracy|perplexity")
    ] = None,
    change: Annotated[HeadChanges, Help("Replacement of a head's weights, as in attent.intervene.")] = HeadChanges.zero,
    limit: Annotated[int | None, Bound(1), Help("Maximum number of examples; no limit unless given.")] = None,
    as_json: Json = False,
) -> None:
    """Rank the heads of a run by how much worse it is without each of them.

    One head at a time is set to zero (or changed as --change says), and the run is evaluated: a translator by the loss
    of references or, with --metric bleu, by its own translations; a classifier by accuracy; a language model by
    perplexity; a run that fills blanks by the share of correct words. A cost above 0 means that the run is worse
    without the head. Intervals come from a paired bootstrap over the examples. The mean entropy and the mean distance
    of each head's weights are printed too. Several heads that cost little by themselves may cost much together.
    """
    settings = search.settings()
    from attent.tasks.task import options_of

    stored = loading.stored_run(run)
    task, files = stored.task, [name for name in (file, target) if name is not None]
    has_references = "target" in options_of(task.judge)
    refuse(
        ("-" in files, "heads are evaluated on files, which are read more than once: standard input cannot be used"),
        (has_references and target is None, "lines to translate need their references: --target FILE"),
        (not has_references and target, "--target is for a run that translates"),
        ("beam" in search.values and metric != "bleu", "--beam is for --metric bleu"),
    )
    from attent.alignment.ablation import cost_lines, judge_heads, ranked

    metric = task.metric(metric)
    options = {"target": target, "search": settings} if has_references else {}
    judge = task.judge(stored, file, metric, say, limit=limit, **options)
    ablation, costs = judge_heads(judge, change.value, say)
    if as_json:
        write(json.dumps(_values(ablation, ranked(costs)), indent=2))
        return
    unit = f" {judge.metric.unit}" if judge.metric.unit not in ("", judge.metric.name) else ""
    title = f"{judge.metric.name} {ablation.score:.4g}{unit} on {len(judge):,} examples"
    write("\n".join((f"{title}; cost of setting a head to {change.value}:", *cost_lines(judge.metric, costs))))


def _values(ablation: Ablation, costs: Sequence[HeadCost]) -> dict[str, Any]:
    metric = ablation.judge.metric
    return {
        "metric": metric.name,
        "unit": metric.unit,
        "score": ablation.score,
        "examples": len(ablation.judge),
        "change": ablation.change,
        "heads": [asdict(cost) for cost in costs],
    }

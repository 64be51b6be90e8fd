"""attent ablate: heads ranked by what a run loses without them."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import Beam, Json, Loading, RunFolder
from attent.cli.output import say, write
from attent.errors import refuse
from attent.setting import Bound, Help

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attent.alignment.ablation import Ablation, HeadCost, HeadJudge

# Heads that --validate judges on other examples.
VALIDATED = 5


class HeadChanges(StrEnum):
    """Changes of a head."""

    zero = "zero"
    uniform = "uniform"
    mean = "mean"


def ablate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="Lines to translate, lines of text, or labelled examples; also .gz.")],
    search: Beam,
    loading: Loading,
    target: Annotated[str | None, Help("References of the lines to translate.")] = None,
    metric: Annotated[
        str | None,
        Help("Metric that heads are ranked by; the first of the run's unless given.", "loss|bleu|accuracy|perplexity"),
    ] = None,
    change: Annotated[HeadChanges, Help("Replacement of a head's weights, as in attent.intervene.")] = HeadChanges.zero,
    limit: Annotated[int | None, Bound(1), Help("Maximum number of examples; all unless given.")] = None,
    out: Annotated[Path | None, Help("Save each head's result in this file; the same command resumes from it.")] = None,
    validate: Annotated[
        str | None, Help("Other examples, on which the five costliest heads are checked.", "FILE2")
    ] = None,
    validate_target: Annotated[str | None, Help("References of --validate.", "TARGET2")] = None,
    as_json: Json = False,
) -> None:
    """Rank the heads of a run by how much worse it is without each of them.

    One head at a time is set to zero (or as --change says), and the run is evaluated: a translator by the loss of
    references, or, with --metric bleu, by its own translations; a classifier by accuracy, a language model by
    perplexity, and a run that fills blanks by the share of words that it guesses. A cost above 0 means that the run is
    worse without the head; intervals are from a paired bootstrap over the examples. The mean entropy of the head's
    weights and their mean distance are printed, too. That a head is cheap does not mean that several cheap heads are
    cheap together.
    """
    settings = search.settings()
    from attent.tasks.task import options_of

    stored = loading.stored_run(run)
    task, files = stored.task, [name for name in (file, target, validate, validate_target) if name is not None]
    has_references = "target" in options_of(task.judge)
    refuse(
        ("-" in files, "heads are judged on files, which are read more than once: not on standard input"),
        (has_references and target is None, "lines to translate need their references: --target FILE"),
        (
            has_references and (validate is None) != (validate_target is None),
            "--validate FILE2 and --validate-target TARGET2 go together",
        ),
        (
            not has_references and (target or validate_target),
            "--target and --validate-target are for a run that translates",
        ),
        ("beam" in search.values and metric != "bleu", "--beam is for --metric bleu"),
    )
    from attent.alignment.ablation import Ablation, cost_lines, head_summaries, judge_heads, ranked, ranking_lines
    from attent.ops import packed_linear
    from attent.ops.packed_linear import WeightType
    from attent.runs.folder import MODEL
    from attent.runs.weights import digest

    metric = task.metric(metric)

    def judge_of(examples: str, references: str | None) -> HeadJudge:
        options = {"target": references, "search": settings} if has_references else {}
        return task.judge(stored, examples, metric, say, limit=limit, **options)

    judge = judge_of(file, target)
    # read first, so that a fault in it is found before heads are judged
    validation_judge = None if validate is None else judge_of(validate, validate_target)
    digests = [digest(Path(name)) if Path(name).is_file() else name for name in (file, target) if name is not None]
    facts = {
        "format": 1,
        "weights": digest(run / MODEL),
        "examples": digests,
        "limit": limit,
        "metric": metric,
        "change": change.value,
    }
    if (kind := packed_linear.kind_of(judge.model)) is not WeightType.FLOAT32:
        # layers are judged in float32, but not embeddings and logits
        facts["dtype"] = kind.name.lower()
    if metric == "bleu":
        facts["beam"] = settings.beam
    ablation, costs = judge_heads(judge, change.value, say, out, facts)
    values = _values(ablation, ranked(costs))
    lines = [f"{_title(ablation)}; what a head costs that is made {change.value}:", *cost_lines(judge.metric, costs)]
    if validation_judge is not None:
        validation, summaries = Ablation(validation_judge, change.value), head_summaries(validation_judge)
        repeated = [
            validation.cost(cost.module, cost.head, summaries[cost.module, cost.head])
            for cost in ranked(costs)[:VALIDATED]
        ]
        values["validation"] = _values(validation, repeated)
        lines += ["", f"the costliest on other examples, {_title(validation)}:", *ranking_lines(judge.metric, repeated)]
    write(json.dumps(values, indent=2) if as_json else "\n".join(lines))


def _title(ablation: Ablation) -> str:
    metric = ablation.judge.metric
    unit = f" {metric.unit}" if metric.unit not in ("", metric.name) else ""
    return f"{metric.name} {ablation.score:.4g}{unit} on {len(ablation.judge):,} examples"


def _values(ablation: Ablation, costs: Sequence[HeadCost]) -> dict[str, Any]:
    metric = ablation.judge.metric
    values: dict[str, Any] = {
        "metric": metric.name,
        "unit": metric.unit,
        "score": ablation.score,
        "examples": len(ablation.judge),
    }
    return {**values, "change": ablation.change, "heads": [asdict(cost) for cost in costs]}

"""attent ablate: the heads of a run, ranked by how much worse it is without each."""

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

# The number of heads that --validate checks on other examples.
VALIDATED = 5


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
    out: Annotated[Path | None, Help("File for each head's result, from which the same command resumes.")] = None,
    validate: Annotated[str | None, Help("Other examples to check the five costliest heads on.", "FILE2")] = None,
    validate_target: Annotated[str | None, Help("References of --validate.", "TARGET2")] = None,
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
    task, files = stored.task, [name for name in (file, target, validate, validate_target) if name is not None]
    has_references = "target" in options_of(task.judge)
    refuse(
        ("-" in files, "heads are evaluated on files, which are read more than once: standard input cannot be used"),
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
    # read first, so that an error in it is found before heads are evaluated
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
        # layers are evaluated in float32, but embeddings and logits are not
        facts["dtype"] = kind.name.lower()
    if metric == "bleu":
        facts["beam"] = settings.beam
    ablation, costs = judge_heads(judge, change.value, say, out, facts)
    values = _values(ablation, ranked(costs))
    lines = [f"{_title(ablation)}; cost of setting a head to {change.value}:", *cost_lines(judge.metric, costs)]
    if validation_judge is not None:
        validation, summaries = Ablation(validation_judge, change.value), head_summaries(validation_judge)
        repeated = [
            validation.cost(cost.module, cost.head, summaries[cost.module, cost.head])
            for cost in ranked(costs)[:VALIDATED]
        ]
        values["validation"] = _values(validation, repeated)
        lines += [
            "",
            f"costliest heads on other examples, {_title(validation)}:",
            *ranking_lines(judge.metric, repeated),
        ]
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

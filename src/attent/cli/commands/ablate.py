"""attent ablate: heads ranked by what a run loses without them."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.inputs import check_file
from attent.cli.options import Beam, Json, Loading, RunFolder
from attent.cli.output import say, write
from attent.errors import refuse
from attent.setting import Bound, Help

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attent.alignment.ablation import Ablation, HeadCost

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
    from attent.runs.config import read_config

    task = read_config(run).task
    is_translator, files = (
        task == "translate",
        [name for name in (file, target, validate, validate_target) if name is not None],
    )
    refuse(
        ("-" in files, "heads are judged on files, which are read more than once: not on standard input"),
        (is_translator and target is None, "lines to translate need their references: --target FILE"),
        (
            is_translator and (validate is None) != (validate_target is None),
            "--validate FILE2 and --validate-target TARGET2 go together",
        ),
        (
            not is_translator and (target or validate_target),
            "--target and --validate-target are for a run that translates",
        ),
        ("beam" in search.values and metric != "bleu", "--beam is for --metric bleu"),
    )
    from attent.alignment.ablation import Ablation, head_summaries
    from attent.cli.ablation import AblationFile, checked_metric, cost_lines, head_judge, ranked, ranking_lines
    from attent.ops import packed_linear
    from attent.ops.packed_linear import WeightType
    from attent.runs.folder import MODEL
    from attent.runs.weights import digest
    from attent.tasks.translation.metrics import bleu_tokenizer

    metric = checked_metric(task, metric)
    if task != "classify":
        for name in files:
            check_file(name)
    tool = loading.tool(run, task)
    tokenize = bleu_tokenizer(read_config(run).target_language)
    judge_of = partial(head_judge, tool, metric=metric, limit=limit, tokenize=tokenize, settings=settings)
    judge = judge_of(file, target)
    digests = [digest(Path(name)) if Path(name).is_file() else name for name in (file, target) if name is not None]
    header = {
        "format": 1,
        "weights": digest(run / MODEL),
        "examples": digests,
        "limit": limit,
        "metric": metric,
        "change": change.value,
    }
    if (kind := packed_linear.kind_of(tool.model)) is not WeightType.FLOAT32:
        # layers are judged in float32, but not embeddings and logits
        header["dtype"] = kind.name.lower()
    with AblationFile(out, header | ({"beam": settings.beam} if metric == "bleu" else {})) as results:
        ablation, summaries = Ablation(judge, change.value), head_summaries(judge)
        say(f"{len(summaries)} heads, {len(results.costs)} of them judged before, on {len(judge):,} examples")
        for number, ((module, head), summary) in enumerate(summaries.items(), start=1):
            if (module, head) not in results.costs:
                results.add(ablation.cost(module, head, summary))
                say(f"{number} of {len(summaries)}: {module}, head {head}")
        costs = [results.costs[key] for key in summaries]
    values = _values(ablation, ranked(costs))
    lines = [f"{_title(ablation)}; what a head costs that is made {change.value}:", *cost_lines(judge.metric, costs)]
    if validate is not None:
        validation = Ablation(judge_of(validate, validate_target), change.value)
        summaries = head_summaries(validation.judge)
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

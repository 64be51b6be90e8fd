"""attent average: replace a run's weights with the mean of several checkpoints."""

from __future__ import annotations

from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say
from attent.errors import ArgumentError
from attent.setting import Bound, Help


def average(
    run: RunFolder,
    last: Annotated[int | None, Bound(1), Help("Average the last N checkpoints.")] = None,
    best: Annotated[int | None, Bound(1), Help("Average the best N checkpoints; all of them unless given.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Replace a run's weights with the mean of several checkpoints; `--best 1` restores the best checkpoint.

    training.keep_best and training.keep_last set how many checkpoints a training keeps.
    """
    if last is not None and best is not None:
        raise ArgumentError("give --last or --best, not both")

    from attent.runs.config import read_config, write_config
    from attent.runs.durable import held
    from attent.runs.folder import read, without_digest, write_weights
    from attent.tasks.task import task_of_run
    from attent.training.checkpoint import average_checkpoints, best_checkpoints, list_checkpoints, weights_file

    # fails here if this is not a run folder, before a lock file is written into it
    read_config(run)
    with held(run):
        config = read_config(run)
        if config.state == "unfinished":
            raise ArgumentError(f"{run} is unfinished: resume it with attent train --resume {run}")
        checkpoints = best_checkpoints(run) if last is None else list_checkpoints(run)[::-1]
        count = last or best or len(checkpoints)
        if not checkpoints or count > len(checkpoints):
            kind = "best" if last is None else "last"
            raise ArgumentError(
                f"{run} has only {len(checkpoints)} of its {kind} checkpoints: training.keep_{kind} sets their number"
            )
        chosen = sorted(checkpoints[:count])
        updates = [int(path.name) for path in chosen]
        model = read(run, trust_code=trust_code).model
        average_checkpoints([weights_file(path) for path in chosen], model)
        # the results belong to the former weights
        outcome = config.training.get("outcome", {}) | {"averaged": updates}
        config = config.model_copy(
            update={"results": {}, "alignment": None, "training": config.training | {"outcome": outcome}}
        )
        write_config(without_digest(config), run)
        write_weights(config, model, run)
    print(f"mean of the weights after updates {', '.join(map(str, updates))}: {run}")
    options = task_of_run(run, config).required_options(config)
    say(f"to evaluate it: attent evaluate {run}{options and f' {options}'}")

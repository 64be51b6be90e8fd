"""attent describe: the model of a run as a tree."""

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import write


def describe(run: RunFolder, trust_code: TrustCode = False) -> None:
    """Print a run's model as a tree of modules with equations, shapes and parameter counts."""
    from attent.runs.folder import read
    from attent.views.describe import describe as tree

    loaded_run = read(run, trust_code=trust_code)
    write(tree(loaded_run.model, f"{run}: {loaded_run.summary}"))

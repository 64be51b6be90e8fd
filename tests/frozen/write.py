"""Write the run folders that the tests beside this file load, each by `attent train` with its file in settings/.

    cd tests/frozen && python write.py dates pairs …

It works in the folder where it stands, so that the runs name their corpora by relative paths. What was written once,
the corpora and documents too, is kept in git: a later version of the package has to read these folders, and must not
write them anew. The numbers in golden/*.json are written by the tests themselves, where ATTENT_FREEZE=1 is set.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# Those that keep the checkpoint from which training can go on.
GOING_ON = ("pairs", "bahdanau", "blanks", "texts", "lines")


def write(name: str) -> None:
    """Train a run, and keep of it what the tests need.

    The one that is called unfinished is a Transformer whose training was interrupted by Ctrl-C.
    """
    folder, settings = Path("runs", name), Path("settings", f"{'pairs' if name == 'unfinished' else name}.toml")
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "attent", "train", "--config", str(settings), "--out", str(folder)]
    if name == "unfinished":
        process = subprocess.Popen([*command, "--updates", "100000", "--set", "training.save_every=50"])
        while process.poll() is None and not (folder / "checkpoints").is_dir():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait()
        return
    subprocess.run(command, check=True)
    if name not in GOING_ON:
        shutil.rmtree(folder / "checkpoints")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(argument)

"""Conversion of old names in run folders to the current ones.

Up to format 3, a model's normalizer was called `normaliser` in config.json and in the names of its tensors, and
`tensorboard` was a setting of training in addition to `log`. Formats 1 and 2 only lack keys, which have defaults in
`attent.runs.config.RunConfig`.
"""

import re
from typing import Any

# in `MultiHeadAttention` and a recurrent decoder's attention; a score itself may have a module with that name
NORMALIZER = re.compile(r"(?<=attention\.)normaliser(?=\.)")
# the folder of normalizers, in a part named "module:Class"
PACKAGE = re.compile(r"^attent\.attention\.normalisers(?=[.:])")


def present_config(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json in format 1, 2 or 3 with the keys of the current format.

    The content need not be valid.
    """
    result = dict(content)
    if isinstance(model := content.get("model"), dict):
        names = {"normaliser": "normalizer"}
        result["model"] = {
            names.get(key, key): PACKAGE.sub("attent.attention.normalizers", value) if isinstance(value, str) else value
            for key, value in model.items()
        }
    if isinstance(training := content.get("training"), dict) and "tensorboard" in training:
        result["training"] = {key: value for key, value in training.items() if key != "tensorboard"}
        if training["tensorboard"] is True and training.get("log") is None:
            result["training"]["log"] = "tensorboard"
    return result


def present_training(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json of the current format without settings that are no longer supported."""
    if not isinstance(training := content.get("training"), dict):
        return content
    log = None if training.get("log") in ("wandb", "mlflow") else training.get("log")
    kept = {key: value for key, value in training.items() if key not in ("log", "sharded")}
    return content | {"training": kept | ({} if "log" not in training else {"log": log})}


def present_name(tensor: str) -> str:
    """Return the current name of a tensor in a file of weights or a checkpoint."""
    return NORMALIZER.sub("normalizer", tensor)

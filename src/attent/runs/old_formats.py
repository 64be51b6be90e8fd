"""Former names in run folders, converted to their present ones.

Up to format 3 a model's normalizer was called `normaliser`, in config.json and in the names of its tensors, and
`tensorboard` was a setting of training beside `log`. Formats 1 and 2 only lack keys, which have defaults in
`attent.runs.config.RunConfig`.
"""

from __future__ import annotations

import re
from typing import Any

# of `MultiHeadAttention` and of a recurrent decoder's attention; a score may have a module of that name itself
NORMALIZER = re.compile(r"(?<=attention\.)normaliser(?=\.)")
# the folder of normalizers, in a part named "module:Class"
PACKAGE = re.compile(r"^attent\.attention\.normalisers(?=[.:])")


def present_config(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json of format 1, 2 or 3 under the keys of the present format.

    The content has not been validated before.
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


def present_name(tensor: str) -> str:
    """Return the present name of a tensor in a file of weights or of a checkpoint."""
    return NORMALIZER.sub("normalizer", tensor)

"""The parts of the formula that a backend may lack: a new slot is one capability here and one word in the backends that have it."""

from __future__ import annotations

from attent.attention.call import Call
from attent.attention.normalizers.softmax import Softmax


def missing(call: Call, capabilities: frozenset[str]) -> str | None:
    """Return what a call needs beyond softmax of biased and masked scores and these capabilities; None if nothing.

    Args:
        call: the call.
        capabilities: of "normalizer" (other than softmax), "weighting", "soft cap", "position bias", "bias",
            "bias gradient", "dropout", "gpu".
    """
    if not isinstance(call.normalizer, Softmax) and "normalizer" not in capabilities:
        return f"its normalizer is softmax, not {type(call.normalizer).__name__}"
    if call.soft_cap is not None and "soft cap" not in capabilities:
        return "it has no soft cap"
    if call.dropout and "dropout" not in capabilities:
        return "its dropout is not a function of (seed, b, h, i, j)"
    if call.weighting is not None and "weighting" not in capabilities:
        return "its weights are not multiplied after normalising"
    if call.position is not None and "position bias" not in capabilities:
        return f"it has no bias of position, which {type(call.position).__name__} adds"
    if call.bias is not None and "bias" not in capabilities:
        return "it has no bias"
    if call.bias is not None and call.bias.requires_grad and "bias gradient" not in capabilities:
        return "it has no gradient for a bias"
    return "it runs on a CPU" if call.device.type != "cpu" and "gpu" not in capabilities else None

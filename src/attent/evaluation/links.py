"""Links from weights: what each word looks at most, or all that it looks at enough."""

from __future__ import annotations

from torch import Tensor

from attent.data.gold import Link


def extract_links(weights: Tensor, threshold: float | None = None) -> list[Link]:
    """For each target word the source word that it looks at most, or all whose weight is above a threshold.

        a(t) = argmax_i A(t, i),  or  {(i, t) : A(t, i) > θ}

    Sources: Luong et al. (2015), §5.4, arXiv 1508.04025, for the first; of words that are looked at alike it is the first one.

    Args:
        weights: (Tq, Tk), row t of which is about target word t.
        threshold: θ; the one word of the largest weight unless given.

    Returns:
        (source word, target word), from 0, in the order of the target; a word that looks at nothing has none.
    """
    if not weights.numel():
        return []
    if threshold is not None:
        return [(source, target) for target, source in (weights > threshold).nonzero().tolist()]
    largest, places = weights.max(1)
    return [(place, target) for target, (weight, place) in enumerate(zip(largest.tolist(), places.tolist(), strict=True)) if weight > 0]

"""Symmetrization: combining the alignments of both translation directions into one.

Sources: Och and Ney (2003), §4, https://aclanthology.org/J03-1002 (intersection, union, and the idea of growing);
Koehn, Och and Marcu (2003), https://aclanthology.org/N03-1017, and Koehn et al. (2005),
https://aclanthology.org/2005.iwslt-1.8 (grow-diag, final and final-and, in the order of words and neighbors of Moses'
symal).
"""

from collections.abc import Callable, Collection

from attent.errors import check_known
from attent.text.text import Link

# Offsets (source, target): the neighbors that share a word first, then the diagonal ones.
NEIGHBORS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


def symmetrize(forward: Collection[Link], backward: Collection[Link], method: str) -> list[Link]:
    """Combine two alignments.

    - intersection: A ∩ B; union: A ∪ B.
    - grow-diag: start from the intersection; repeatedly add links of the union that neighbor a chosen one, including
      diagonally, and have at least one unlinked word.
    - grow-diag-final: then add links of A, and then of B, with at least one unlinked word.
    - grow-diag-final-and: then add links of A, and then of B, whose words are both unlinked.

    Args:
        forward: A, as (source, target) links.
        backward: B, also as (source, target) links.
        method: one of these names.

    Raises:
        UnknownNameError: there is no such method.
    """
    check_known("symmetrization method", method, METHODS)
    return sorted(METHODS[method](set(forward), set(backward)))


def _grow_diag(forward: set[Link], backward: set[Link]) -> set[Link]:
    """Grow the intersection; an added link takes effect immediately, and further links can grow from it."""
    chosen, union = forward & backward, forward | backward
    sources, targets = _linked_words(chosen)
    rows, columns = range(max((t for _, t in union), default=-1) + 1), range(max((s for s, _ in union), default=-1) + 1)
    has_grown = True
    while has_grown:
        has_grown = False
        for target in rows:
            for source in columns:
                if (source, target) not in chosen:
                    continue
                for across, along in NEIGHBORS:
                    link = source + across, target + along
                    if link in union and link not in chosen and (link[0] not in sources or link[1] not in targets):
                        chosen.add(link)
                        sources.add(link[0])
                        targets.add(link[1])
                        has_grown = True
    return chosen


def _grow_diag_final(forward: set[Link], backward: set[Link], *, needs_both: bool) -> set[Link]:
    chosen = _grow_diag(forward, backward)
    sources, targets = _linked_words(chosen)
    for links in (forward, backward):
        for source, target in sorted(links, key=lambda link: link[::-1]):
            unlinked = (source not in sources) + (target not in targets)
            if unlinked > needs_both:
                chosen.add((source, target))
                sources.add(source)
                targets.add(target)
    return chosen


def _linked_words(links: Collection[Link]) -> tuple[set[int], set[int]]:
    """Return the source words and the target words that have a link."""
    return {source for source, _ in links}, {target for _, target in links}


METHODS: dict[str, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": set.intersection,
    "union": set.union,
    "grow-diag": _grow_diag,
    "grow-diag-final": lambda forward, backward: _grow_diag_final(forward, backward, needs_both=False),
    "grow-diag-final-and": lambda forward, backward: _grow_diag_final(forward, backward, needs_both=True),
}

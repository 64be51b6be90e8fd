"""One alignment from two, read in both directions.

Sources: Och and Ney (2003), §4, https://aclanthology.org/J03-1002 (intersection, union, and the idea of growing); Koehn, Och and
Marcu (2003), https://aclanthology.org/N03-1017, and Koehn et al. (2005), https://aclanthology.org/2005.iwslt-1.8 (grow-diag, final
and final-and, in the order of words and neighbours of Moses' symal).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from attent.data.gold import Link
from attent.errors import UnknownNameError

# In (source, target), the neighbours that share a word first, then those that stand across a corner.
NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


def symmetrize(forward: Collection[Link], backward: Collection[Link], how: str) -> list[Link]:
    """Both alignments as one.

    - intersection: A ∩ B; union: A ∪ B.
    - grow-diag: from the intersection, take link after link of the union that touches one already taken, be it at a corner, and
      of whose two words one has no link yet.
    - grow-diag-final: then take links of A, and after them of B, of whose two words one has no link yet.
    - grow-diag-final-and: the same of links both of whose words have none.

    Args:
        forward: A, (source, target) each.
        backward: B, likewise (source, target).
        how: one of these names.

    Raises:
        UnknownNameError: there is no such way.
    """
    if how not in METHODS:
        raise UnknownNameError("way to symmetrise", how, METHODS)
    return sorted(METHODS[how](set(forward), set(backward)))


def _grown(one: set[Link], other: set[Link]) -> set[Link]:
    """Grow-diag; what is taken counts at once, also as a place to grow from."""
    taken, union = one & other, one | other
    sources, targets = _words(taken)
    rows, columns = range(max((t for _, t in union), default=-1) + 1), range(max((s for s, _ in union), default=-1) + 1)
    grows = True
    while grows:
        grows = False
        for target in rows:
            for source in columns:
                if (source, target) not in taken:
                    continue
                for across, along in NEIGHBOURS:
                    link = source + across, target + along
                    if link in union and link not in taken and (link[0] not in sources or link[1] not in targets):
                        taken.add(link)
                        sources.add(link[0])
                        targets.add(link[1])
                        grows = True
    return taken


def _finished(one: set[Link], other: set[Link], *, both: bool) -> set[Link]:
    taken = _grown(one, other)
    sources, targets = _words(taken)
    for links in (one, other):
        for source, target in sorted(links, key=lambda link: link[::-1]):
            lacking = (source not in sources) + (target not in targets)
            if lacking > both:
                taken.add((source, target))
                sources.add(source)
                targets.add(target)
    return taken


def _words(links: Collection[Link]) -> tuple[set[int], set[int]]:
    """The source words and the target words that have a link."""
    return {source for source, _ in links}, {target for _, target in links}


METHODS: dict[str, Callable[[set[Link], set[Link]], set[Link]]] = {
    "intersection": set.intersection,
    "union": set.union,
    "grow-diag": _grown,
    "grow-diag-final": lambda one, other: _finished(one, other, both=False),
    "grow-diag-final-and": lambda one, other: _finished(one, other, both=True),
}

# The name of earlier versions.
symmetrised = symmetrize

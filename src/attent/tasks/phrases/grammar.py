"""A small grammar of English sentences with their dependency trees and their translations into French."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from attent.tasks.sampling import Draw, choose


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
# Words in English and French, by their slot in a phrase; one is chosen, the empty text for no word. In French, a size
# precedes the noun, and a color, or the state of a person, follows it. A determiner says whether the noun is plural.
DETERMINERS = (
    *(("the", "le/la/les/les", False), ("a", "un/une/un/une", False)) * 2,
    ("the", "les", True),
    ("two", "deux", True),
    ("three", "trois", True),
)
NONE = ("", "")
WORDS = {
    "size": (
        *(NONE,) * 9,
        ("small", "petit/petite/petits/petites"),
        ("big", "grand/grande/grands/grandes"),
        ("pretty", "joli/jolie/jolis/jolies"),
    ),
    "color": (
        *(NONE,) * 8,
        ("black", "noir/noire/noirs/noires"),
        ("white", "blanc/blanche/blancs/blanches"),
        ("gray", "gris/grise/gris/grises"),
        ("green", "vert/verte/verts/vertes"),
    ),
    "state": (
        *(NONE,) * 6,
        ("tired", "fatigué/fatiguée/fatigués/fatiguées"),
        ("happy", "content/contente/contents/contentes"),
        ("calm", "calme/calme/calmes/calmes"),
    ),
    "preposition": (("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("near", "près de")),
    "adverb": (*(NONE,) * 8, ("often", "souvent"), ("always", "toujours")),
    "opening": (*(NONE,) * 6, ("today", "aujourd'hui"), ("here", "ici")),
}
# What follows the noun of a subject.
MODIFIERS = (*("none",) * 10, *("location",) * 4, *("subject relative",) * 3, *("object relative",) * 3)
# What follows an intransitive verb: a location or nothing.
COMPLEMENTS = ("l", "l", "", "", "")
# The relation, of Universal Dependencies, of words that precede the word that they depend on; of adjectives, amod.
RELATIONS = {
    **dict.fromkeys(("the", "a", "an"), "det"),
    **dict.fromkeys(("two", "three"), "nummod"),
    **dict.fromkeys(("often", "always"), "advmod"),
    **{english: "case" for english, _ in WORDS["preposition"]},
    "that": "nsubj",
}


class ParsedSentence(NamedTuple):
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


# Consecutive words of which all depend on the last, such as `on the mat` or `often sings`: in English, in French, the
# relation of the last word to the last word of another chunk, and the offset of that chunk from this one, 0 for the
# chunk of the main verb.
Chunk = tuple[str, str, str, int]


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


def draw_sentence(draw: Draw) -> ParsedSentence:
    """Return a sentence, in which no noun and no verb occurs twice."""
    nouns, verbs = sorted(NOUNS, key=lambda _: draw()), sorted(VERBS, key=lambda _: draw())

    def noun_phrase(kinds: str, relation: str, offset: int = 0) -> tuple[Chunk, Noun, int]:
        noun = nouns.pop(next(index for index, noun in enumerate(nouns) if noun.kind in kinds))
        preposition = choose(draw, WORDS["preposition"]) if kinds == "l" else NONE
        determiner, size = choose(draw, DETERMINERS), choose(draw, WORDS["size"])
        quality = choose(draw, WORDS["state" if noun.kind == "p" else "color"])
        form = 2 * determiner[2] + (noun.gender == "f")
        english = (preposition[0], determiner[0], size[0], quality[0], inflect(noun.english, form))
        french = (preposition[1], *(inflect(word, form) for word in (determiner[1], size[1], noun.french, quality[1])))
        return (" ".join(english), " ".join(french), relation, offset), noun, form

    verb, opening, adverb = verbs.pop(), choose(draw, WORDS["opening"]), choose(draw, WORDS["adverb"])
    subject, noun, form = noun_phrase(verb.subjects, "nsubj")
    chunks, predications = [(*opening, "advmod", 0)] * any(opening) + [subject], [(noun, verb)]
    match choose(draw, MODIFIERS):
        case "location":
            chunks.append(noun_phrase("l", "nmod", -1)[0])
        case "subject relative":
            inner = next(inner for inner in verbs if inner.objects not in "-l" and noun.kind in inner.subjects)
            english, french = inflect(inner.english, form), inflect(inner.french, form)
            clause = (f"that {english}", f"qui {french}", "acl:relcl", -1)
            chunks += [clause, noun_phrase(inner.objects, "obj", -1)[0]]
            predications.append((noun, inner))
        case "object relative":
            inner = next(inner for inner in verbs if noun.kind in inner.objects)
            agent, person, number = noun_phrase(inner.subjects, "nsubj", 1)
            clause = (inflect(inner.english, number), inflect(inner.french, number), "acl:relcl", -3)
            chunks += [("that", "que", "obj", 2), agent, clause]
            predications.append((person, inner))
        case _:
            pass
    # in French, an adverb follows the finite verb
    finite, _, participle = inflect(verb.french, form).partition("_")
    main = (f"{adverb[0]} {inflect(verb.english, form)}", f"{finite} {adverb[1]} {participle}", "root", 0)
    complement = verb.objects if verb.objects != "-" else choose(draw, COMPLEMENTS)
    relation = "obl" if complement == "l" else "obj"
    return assemble([*chunks, main, *([noun_phrase(complement, relation)[0]] if complement else [])], predications)


def assemble(chunks: Sequence[Chunk], predications: Sequence[tuple[Noun, Verb]]) -> ParsedSentence:
    """Return the sentence of these chunks."""
    english, french, relations, offsets = zip(*chunks, strict=True)
    last = [end - 1 for end in accumulate(len(chunk.split()) for chunk in english)]
    heads, names = list[int](), list[str]()
    for index, chunk in enumerate(english):
        *dependents, _ = chunk.split()
        is_root, head = (
            relations[index] == "root",
            offsets[index] + index if offsets[index] else relations.index("root"),
        )
        heads += [*[last[index]] * len(dependents), -1 if is_root else last[head]]
        names += [*(RELATIONS.get(word, "amod") for word in dependents), relations[index]]
    text = re.sub(r"\ba (?=[aeiou])", "an ", " ".join(" ".join(english).split()))
    return ParsedSentence(text, elide(" ".join(french)), heads, names, predications)


# The examples of introductions to attention.
EXAMPLES = tuple(
    assemble(chunks, [predication])
    for chunks, predication in (
        ([("the black dog", "le chien noir", "nsubj", 0), ("sings", "chante", "root", 0)], (NOUNS[0], VERBS[0])),
        (
            [
                ("the cat", "le chat", "nsubj", 0),
                ("sat", "était assis", "root", 0),
                ("on the mat", "sur le tapis", "obl", 0),
            ],
            (NOUNS[1], VERBS[7]),
        ),
    )
)

"""Import of translators from Hugging Face's transformers as runs: Marian, and M2M100 with NLLB.

Sources: Marian (including the translators of OPUS-MT), Junczys-Dowmunt et al. (2018), arXiv 1804.00344; M2M100, Fan et
al. (2020), arXiv 2010.11125; NLLB, Costa-jussà et al. (2022), arXiv 2207.04672.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attent.errors import AttentError, RunError, refuse, reraise
from attent.models.settings import TransformerSettings
from attent.ops import packed_linear
from attent.runs.config import CONFIG, RunConfig, is_pretrained
from attent.runs.durable import held
from attent.runs.folder import Run, RunWriter, model_of
from attent.runs.folder import read as read_run
from attent.runs.hugging_face.folder import MARIAN, SourceFolder
from attent.runs.hugging_face.layout import (
    SIDES,
    SpecialIds,
    TranslatorSource,
    Vocabulary,
    common_settings,
    offset_positions,
    our_tensors,
    sinusoids,
)
from attent.runs.packed import write_packed
from attent.runs.weights import tensors_of
from attent.text.tokenizers import EOS_PIECE, UNK_PIECE, SentencePieceTokenizer, processor_of

# Settings that Marian in transformers ignores, although models trained with them need them.
UNSUPPORTED = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
# Positions that differ from the formula by less than this are considered equal to it.
TOLERANCE = 1e-5
PAD_PIECE = "<pad>"
SPM, VOCABULARY_FILE, TOKENIZER_FILE = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
# Both families begin with these tokens, regardless of the ids in the SentencePiece model.
FIRST = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
# The number of ids before the pieces of a SentencePiece model: <unk>, <s> and </s>.
OWN = 3
# The languages of M2M100, in the order of their ids.
LANGUAGES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)

KIND = "sentencepiece"
LICENCE = "LICENSE"
# Search settings in generation_config.json.
SEARCH = ("num_beams", "length_penalty", "early_stopping", "max_length", "no_repeat_ngram_size")


def read_marian(folder: SourceFolder, source_language: str | None, target_language: str | None) -> TranslatorSource:
    """Read the settings, tokenizers and positions of a Marian folder.

    Args:
        folder: the folder to read.
        source_language: the source language, which is only recorded.
        target_language: the target language; if the vocabulary has a mark for it, such as ">>fra<<", every source
            begins with that mark.

    Raises:
        RunError: a file is missing or damaged, or attent cannot express the model.
    """
    if wrong := next((name for name in UNSUPPORTED if folder.config.get(name)), None):
        raise folder.error(f"{wrong} is not supported by Marian in transformers, nor by attent")
    settings = common_settings(folder)
    positions = _learned_positions(folder, settings["width"])
    kind = {"position": "learned", "maximum_length": folder.number("max_position_embeddings")} if positions else {}
    vocabularies = _marian_vocabularies(folder)
    mark = f">>{target_language}<<"
    before = [mark] if target_language and mark in vocabularies[0].names.values() else []
    tokenizers = (
        _marian_tokenizer(
            folder, "source.spm", vocabularies[0], before=before, after=[EOS_PIECE], has_language=not before
        ),
        _marian_tokenizer(folder, "target.spm", vocabularies[1]),
    )
    named = folder.tokenizer_config.get("source_lang"), folder.tokenizer_config.get("target_lang")
    languages = {
        side: language
        for side, option, default in zip(SIDES, (source_language, target_language), named, strict=True)
        if isinstance(language := option or default, str)
    }
    return TranslatorSource(
        folder, TransformerSettings(**settings, **kind), tokenizers, vocabularies, positions, languages
    )


def _marian_vocabularies(folder: SourceFolder) -> tuple[Vocabulary, Vocabulary]:
    size = folder.vocabulary_size("vocab_size")
    target_size = (
        folder.vocabulary_size("decoder_vocab_size") if folder.config.get("decoder_vocab_size") is not None else size
    )
    has_own = (folder.path / "target_vocab.json").exists() and folder.tokenizer_config.get(
        "separate_vocabs", True
    ) is True
    if not has_own and size != target_size:
        raise folder.error(
            f"target_vocab.json is missing: vocab_size and decoder_vocab_size are {size:,} and {target_size:,}"
        )
    pad, start, eos = (folder.token(f"{name}_token_id", target_size) for name in ("pad", "decoder_start", "eos"))
    ids = folder.vocabulary("target_vocab.json" if has_own else "vocab.json")
    target = _marian_vocabulary(folder, ids, target_size, pad, start)
    if ids[EOS_PIECE] != eos:
        raise folder.error(f"eos_token_id is {eos}, and {EOS_PIECE} has the id {ids[EOS_PIECE]} in its vocabulary")
    if not has_own:
        return target, target
    ids = folder.vocabulary("vocab.json")
    pad = ids.get(PAD_PIECE, size - 1)
    return _marian_vocabulary(folder, ids, size, pad, pad), target


def _marian_vocabulary(folder: SourceFolder, ids: dict[str, int], size: int, pad: int, start: int) -> Vocabulary:
    if missing := next((piece for piece in (UNK_PIECE, EOS_PIECE) if piece not in ids), None):
        raise folder.error(f"{missing} is missing in its vocabulary")
    if max(ids.values()) >= size:
        raise folder.error(f"its vocabulary has ids up to {max(ids.values()):,}, and config.json says {size:,}")
    names = {token: name for name, token in ids.items()}
    return Vocabulary(names, size, SpecialIds(pad, ids[UNK_PIECE], start, ids[EOS_PIECE]))


def _marian_tokenizer(
    folder: SourceFolder,
    file: str,
    vocabulary: Vocabulary,
    *,
    before: list[str] | None = None,
    after: list[str] | None = None,
    has_language: bool = False,
) -> SentencePieceTokenizer:
    with reraise(folder.error, file, ValueError):
        return SentencePieceTokenizer(
            folder.model(file),
            vocabulary.pieces,
            before=before or (),
            after=after or (),
            marks=vocabulary.unnamed,
            has_language=has_language,
        )


def _learned_positions(folder: SourceFolder, width: int) -> dict[str, Tensor]:
    """Return the tables of positions by side, unless they match the formula."""
    names = {side: f"model.{stack}.embed_positions.weight" for side, stack in SIDES.items()}
    count = folder.number("max_position_embeddings")
    if any(folder.weights.shapes.get(name, (count, width)) != (count, width) for name in names.values()):
        raise folder.error(f"embed_positions must be ({count}, {width}) by config.json")
    if not any(name in folder.weights for name in names.values()):
        return {}
    formula = sinusoids(count, width)
    tables = {side: folder.weights.get(name, formula) for side, name in names.items()}
    return {} if all(torch.allclose(table, formula, atol=TOLERANCE) for table in tables.values()) else tables


def read_m2m100(folder: SourceFolder, source_language: str | None, target_language: str | None) -> TranslatorSource:
    """Read the settings, tokenizers and positions of a folder of M2M100 or NLLB.

    Args:
        folder: the folder to read.
        source_language: the code of the source language, such as "en" (M2M100) or "eng_Latn" (NLLB).
        target_language: the code of the target language.

    Raises:
        RunError: a file is missing or damaged, a language is missing or unknown, or attent cannot express the
            model.
    """
    settings = common_settings(folder)
    size, count = folder.vocabulary_size("vocab_size"), folder.number("max_position_embeddings")
    is_nllb = not (folder.path / VOCABULARY_FILE).exists()
    model = folder.model(SPM)
    names, marks = _m2m100_names(folder, model, is_nllb=is_nllb)
    if max(names) >= size:
        raise folder.error(f"its vocabulary has ids up to {max(names):,}, and config.json says {size:,}")
    languages = {
        side: _mark(folder, side, language, marks)
        for side, language in zip(SIDES, (source_language, target_language), strict=True)
    }
    pad, start, eos = (folder.token(f"{name}_token_id", size) for name in ("pad", "decoder_start", "eos"))
    unk = next((token for token, name in names.items() if name == FIRST[3]), None)
    if unk is None or names.get(eos) != EOS_PIECE:
        raise folder.error(f"its vocabulary must have {FIRST[3]}, and {EOS_PIECE} as eos_token_id = {eos}")
    vocabulary = Vocabulary(names, size, SpecialIds(pad, unk, start, eos))
    ordinary = set(vocabulary.pieces)
    unspelled = [*vocabulary.unnamed, *(mark for mark in (*FIRST, MASK, *marks) if mark in ordinary)]
    options: dict[str, Any] = {"marks": unspelled, "has_last_space": is_nllb}
    is_suffix = is_nllb and folder.tokenizer_config.get("legacy_behaviour") is True
    before, after = ([], [EOS_PIECE, languages["source"]]) if is_suffix else ([languages["source"]], [EOS_PIECE])
    with reraise(folder.error, SPM, ValueError):
        tokenizers = (
            SentencePieceTokenizer(model, vocabulary.pieces, before=before, after=after, **options),
            SentencePieceTokenizer(model, vocabulary.pieces, before=[languages["target"]], **options),
        )
    table = offset_positions(count, settings["width"], pad + 1)
    codes = {side: language.strip("_") for side, language in languages.items()}
    settings = TransformerSettings(**settings, norm="pre", position="learned", maximum_length=count)
    return TranslatorSource(folder, settings, tokenizers, (vocabulary, vocabulary), dict.fromkeys(SIDES, table), codes)


def _m2m100_names(folder: SourceFolder, model: bytes, *, is_nllb: bool) -> tuple[dict[int, str], list[str]]:
    """Return the names of ids, and the language marks among these."""
    if is_nllb:
        with reraise(folder.error, SPM, ValueError):
            processor = processor_of(model)
        pieces = [*FIRST, *(processor.IdToPiece(token) for token in range(OWN, processor.GetPieceSize()))]
        names = dict(enumerate(pieces))
    else:
        names = {token: name for name, token in folder.vocabulary(VOCABULARY_FILE).items()}
    added = _added(folder, len(names), is_nllb=is_nllb)
    refuse(
        *(
            (
                names.get(token, name) != name,
                f"the id {token} is {names.get(token)!r} in its vocabulary and {name!r} among the added tokens",
            )
            for token, name in added.items()
        ),
        kind=folder.error,
    )
    return names | added, [name for name in added.values() if name not in (*FIRST, MASK)]


def _added(folder: SourceFolder, count: int, *, is_nllb: bool) -> dict[int, str]:
    """Return the tokens added to the vocabulary, by id.

    If no file lists them with their ids, the language marks follow the first `count` ids.
    """
    listed = folder.json(TOKENIZER_FILE, {}).get("added_tokens") if is_nllb else None
    tokens = folder.tokenizer_config.get("added_tokens_decoder")
    named: dict[Any, Any] = {}
    if isinstance(listed, list):
        named = {token.get("id"): token.get("content") for token in listed if isinstance(token, dict)}
    elif isinstance(tokens, dict):
        named = {
            int(token): value.get("content")
            for token, value in tokens.items()
            if token.isdecimal() and isinstance(value, dict)
        }
    if any(type(token) is not int or not isinstance(name, str) for token, name in named.items()):
        raise folder.error("its added tokens must be strings with ids")
    if not any(token >= count for token in named):
        marks = _marks(folder, is_nllb=is_nllb)
        named |= {count + index: mark for index, mark in enumerate(marks)}
    return named


def _marks(folder: SourceFolder, *, is_nllb: bool) -> list[str]:
    """Return the language marks in the order of their ids."""
    for content in (folder.special_tokens, folder.tokenizer_config):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            marks = content.get(key)
            if isinstance(marks, list) and marks and all(isinstance(mark, str) and mark for mark in marks):
                return marks
    if is_nllb:
        raise folder.error("its languages are missing: they must be in tokenizer.json or special_tokens_map.json")
    if folder.tokenizer_config.get("language_codes", "m2m100") != "m2m100":
        raise folder.error("its languages are missing: they must be in special_tokens_map.json")
    return [f"__{language}__" for language in LANGUAGES.split()]


def _mark(folder: SourceFolder, side: str, language: str | None, marks: list[str]) -> str:
    mark = next((mark for mark in (language, f"__{language}__") if mark in marks), None)
    if mark is None:
        examples = ", ".join(mark.strip("_") for mark in marks[:4])
        problem = "is not given" if language is None else f"{language!r} is unknown"
        raise folder.error(
            f"it has {len(marks)} languages ({examples}, …), and the {side} language {problem}: set --{side}-language"
        )
    return mark


# The families of translators by model_type.
FAMILIES: dict[str, Callable[[SourceFolder, str | None, str | None], TranslatorSource]] = {
    "marian": read_marian,
    "m2m_100": read_m2m100,
}


def is_marian(path: Path | str) -> bool:
    """Return whether a folder has Marian's own files, by their names."""
    folder = Path(path)
    return not (folder / CONFIG).is_file() and any(any(folder.glob(pattern)) for pattern in MARIAN)


def is_translator(path: Path | str) -> bool:
    """Return whether a folder contains a translator that can be imported, according to its config.json or its files."""
    try:
        return is_marian(path) or (is_pretrained(path) and SourceFolder(path).config.get("model_type") in FAMILIES)
    except RunError:
        return False


def read(path: Path | str, source_language: str | None = None, target_language: str | None = None) -> Run:
    """Read a folder of Marian, M2M100 or NLLB as a run.

    Args:
        path: the folder.
        source_language: the source language; required by M2M100 and NLLB.
        target_language: the target language; required by M2M100, NLLB and some Marian models.

    Raises:
        RunError: a file is missing or damaged, or attent cannot express the model.
    """
    return _built(*_source(path, source_language, target_language))


def _built(source: TranslatorSource, family: str) -> Run:
    folder = source.folder
    # sizes are compared with the weights before memory is allocated for a model of these sizes
    tensors = our_tensors(source)
    first = next(tensors)
    config = _config(source, family)
    try:
        model = model_of(config, source.tokenizers)
    except (AttentError, RuntimeError) as error:
        raise folder.error(" ".join(str(error).split())) from error
    named = tensors_of(model)
    with torch.no_grad():
        for name, tensor in (first, *tensors):
            named.pop(name).copy_(tensor)
    assert not named, f"not filled: {', '.join(named)}"
    files = {LICENCE: text} if (text := folder.text(LICENCE)) else {}
    config = config.model_copy(update={"files": tuple(files)})
    return Run(config, model.eval(), dict(zip(config.tokenizers, source.tokenizers, strict=True)), files)


def _source(path: Path | str, *languages: str | None) -> tuple[TranslatorSource, str]:
    if is_marian(path):
        from attent.runs.hugging_face.marian import MarianFolder, read_native

        return read_native(MarianFolder(path), *languages), "Marian"
    folder = SourceFolder(path)
    family = folder.config.get("model_type")
    if family not in FAMILIES:
        raise folder.error(f"model_type must be one of {', '.join(FAMILIES)}, got {family!r}")
    return FAMILIES[family](folder, *languages), f"transformers {family}"


def import_run(
    path: Path | str,
    out: Path | str,
    source_language: str | None = None,
    target_language: str | None = None,
    *,
    replace: bool = False,
    fixed_activations: bool = False,
) -> RunConfig:
    """Convert a folder of transformers or of Marian into a run folder, and return its config; for errors, see `read`.

    A model of 8 bits is also written in 8 bits, in which it then computes, if the compiled extension is there.

    Args:
        path: the folder.
        out: the run folder to write.
        source_language: see `read`.
        target_language: see `read`.
        replace: True to replace an existing run folder.
        fixed_activations: True to round activations to 8 bits by the factors in Marian's file, instead of each row by
            its largest number.
    """
    with RunWriter(out, replace=replace) as writer:
        source, family = _source(path, source_language, target_language)
        if fixed_activations and not source.factors:
            raise source.folder.error("it has no factors of activations")
        run = _built(source, family)
        writer.begin(run.config, *run.tokenizers.values(), files=run.files)
        writer.finish(run.config, run.model, *run.tokenizers.values())
    factors = source.factors if fixed_activations else {}
    if source.has_8_bits and packed_linear.is_there():
        with held(out):
            write_packed(Path(out), read_run(out), "int8", factors)
    return run.config


def _config(source: TranslatorSource, family: str) -> RunConfig:
    folder = source.folder
    name, merged = folder.config.get("_name_or_path"), folder.config | folder.generation
    origin: dict[str, Any] = {
        "format": family,
        "name": name if isinstance(name, str) and name else folder.path.resolve().name,
        "licence": folder.licence,
        **{f"{side}_language": language for side, language in source.languages.items()},
        "search": {key: merged[key] for key in SEARCH if isinstance(merged.get(key), str | int | float)},
    }
    return RunConfig.model_validate(
        {
            "tokenizers": dict.fromkeys(("source", "target"), KIND),
            "model": source.settings,
            "origin": {key: value for key, value in origin.items() if value is not None},
            "alignment": source.alignment,
        }
    )

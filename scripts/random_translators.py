"""Translator folders with random weights, written by Hugging Face's transformers.

They are used to test and measure importing. Weights are scaled so that outputs are peaked, and the end token's logit is
raised so that translations have various lengths.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import load_file, save_file

LINES = [
    "The dog runs across the street.",
    "Ein Hund läuft über die Straße – „schnell“!",
    "L'été, les garçons jouent à la balle.",
    "Два пса бегут по снегу, а ёлки стоят…",
    "犬が雪の中を走っている。",
    "كلب يجري في الثلج",
    "ｆｕｌｌ ｗｉｄｔｈ １２３ ﬁne ½ №",
]
# text that does not change: otherwise every change of the documentation would change near ties of random models
TEXT = Path(__file__).parents[1] / "LICENSE"
# Three of M2M100's hundred languages; NLLB's are chosen by the folder.
LANGUAGES = ("eng_Latn", "fra_Latn", "deu_Latn")
SMALL: dict[str, Any] = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
}


def lines() -> list[str]:
    """Return real text in several scripts."""
    return LINES * 20 + [line.strip() for line in TEXT.read_text("utf-8").splitlines() if line.strip()]


def sources(count: int, seed: int = 0) -> list[str]:
    """Return texts of 1 to 12 words from the lines."""
    draw = random.Random(seed)
    words = " ".join(lines()).split()
    return [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(count)]


def texts(count: int, seed: int = 0) -> list[str]:
    """Return lines, lines of shuffled words with wide spaces, and random characters.

    Lines that contain a special token are omitted: attent treats it as text, transformers as a token.
    """
    draw, known = random.Random(seed), [line for line in lines() if "s>" not in line]
    characters = sorted({character for line in known for character in line}) + list("\u00a0\u200b\t\u3000😀<>&ê№①")
    result: list[str] = []
    for _ in range(count):
        words = draw.choice(known).split()
        draw.shuffle(words)
        noise = "".join(draw.choices(characters, k=draw.randint(1, 40)))
        result.append(draw.choice((draw.choice(known), (" " * draw.randint(1, 3)).join(words), noise)))
    return result


def learn(file: Path, kind: str, size: int, text: list[str] | None = None) -> list[str]:
    """Write a SentencePiece model and return its pieces."""
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(text or lines()),
        model_prefix=str(file.with_suffix("")),
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    file.with_suffix(".vocab").unlink()
    if file.suffix != ".model":
        file.with_suffix(".model").rename(file)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [processor.IdToPiece(token) for token in range(3, processor.GetPieceSize())]


def write_vocabulary(file: Path, pieces: list[str], eos: int) -> dict[str, int]:
    """Write Marian's map from pieces to ids: </s> has the id `eos`, <unk> the next, and <pad> the last."""
    names = [*pieces[:eos], "</s>", "<unk>", *pieces[eos:], "<pad>"]
    ids = {name: token for token, name in enumerate(names)}
    file.write_text(json.dumps(ids), "utf-8")
    return ids


def marian(
    folder: Path,
    *,
    separate: bool = False,
    eos: int = 0,
    learned: bool = False,
    size: int = 300,
    seed: int = 0,
    ends: float = 1 / 6,
    **options: Any,
) -> Any:
    """Write a Marian folder with its tokenizer and return the model.

    Args:
        folder: the folder to create.
        separate: whether source and target have separate vocabularies.
        eos: the id of the end token.
        learned: whether positions differ from the formula's.
        size: the vocabulary size.
        seed: the seed of the weights.
        ends: the share of greedy steps at which the end token is the most likely.
        options: further options of MarianConfig.
    """
    from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir(parents=True)
    source, target = (learn(folder / f"{side}.spm", "unigram", size) for side in ("source", "target"))
    files: dict[str, Any] = {
        "vocab": folder / "vocab.json",
        "source_spm": folder / "source.spm",
        "target_spm": folder / "target.spm",
    }
    if separate:
        source_ids = write_vocabulary(folder / "vocab.json", [*source, ">>fra<<"], eos)
        ids = write_vocabulary(folder / "target_vocab.json", target[:-20], eos)
        files["target_vocab_file"] = folder / "target_vocab.json"
    else:
        source_ids = ids = write_vocabulary(folder / "vocab.json", [*dict.fromkeys((*source, *target)), ">>fra<<"], eos)
    MarianTokenizer(**{name: str(file) for name, file in files.items()}, separate_vocabs=separate).save_pretrained(
        folder
    )
    settings: dict[str, Any] = SMALL | {
        "vocab_size": len(source_ids),
        "decoder_vocab_size": len(ids),
        "share_encoder_decoder_embeddings": not separate,
        "pad_token_id": ids["<pad>"],
        "decoder_start_token_id": ids["<pad>"],
        "eos_token_id": eos,
        "forced_eos_token_id": eos,
        "activation_function": "swish",
        "scale_embedding": True,
    }
    model: Any = MarianMTModel(MarianConfig(**(settings | options))).eval()
    scale(model, seed)
    with torch.no_grad():
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, ids["<pad>"]] = 0
        for embedding in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head):
            embedding.weight[embedding.weight.shape[0] - 1] = 0
        stacks = {"encoder": model.model.encoder, "decoder": model.model.decoder}
        tables: dict[str, Any] = {
            f"model.{name}.embed_positions.weight": stack.embed_positions.weight for name, stack in stacks.items()
        }
        for table in tables.values() if learned else ():
            table.normal_(std=0.5)
        model.final_logits_bias[0, eos] += lead(model, eos, ends)
    model.generation_config = GenerationConfig(
        num_beams=4,
        max_length=100,
        bad_words_ids=[[ids["<pad>"]]],
        pad_token_id=ids["<pad>"],
        decoder_start_token_id=ids["<pad>"],
        eos_token_id=eos,
        forced_eos_token_id=eos,
    )
    model.save_pretrained(folder)
    if learned:
        # transformers reads them but does not write them
        file = folder / "model.safetensors"
        save_file(load_file(file) | {name: table.clone() for name, table in tables.items()}, file, {"format": "pt"})
    return model


def m2m100(
    folder: Path, *, nllb: bool = False, size: int = 400, seed: int = 0, ends: float = 1 / 6, **options: Any
) -> Any:
    """Write a folder of M2M100 or NLLB with its tokenizer and return the model; arguments as for `marian`."""
    from transformers import (
        GenerationConfig,
        M2M100Config,
        M2M100ForConditionalGeneration,
        M2M100Tokenizer,
        NllbTokenizer,
    )

    folder.mkdir(parents=True)
    spm = folder / "sentencepiece.bpe.model"
    pieces = learn(spm, "bpe", size)
    if nllb:
        tokenizer = NllbTokenizer.from_pretrained(
            folder, src_lang="eng_Latn", tgt_lang="fra_Latn", extra_special_tokens=list(LANGUAGES)
        )
        count = len(tokenizer)
    else:
        vocabulary: dict[str, int] = {
            name: token for token, name in enumerate(("<s>", "<pad>", "</s>", "<unk>", *pieces))
        }
        (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
        tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(spm), src_lang="en", tgt_lang="fr")
        count = len(vocabulary) + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words
    kept = spm.read_bytes()
    tokenizer.save_pretrained(folder)
    spm.write_bytes(kept)
    settings: dict[str, Any] = SMALL | {"vocab_size": count} | options
    model: Any = M2M100ForConditionalGeneration(M2M100Config(**settings)).eval()
    scale(model, seed)
    with torch.no_grad():
        # Without an output bias, the last norm's bias raises the end token's logit.
        row = model.lm_head.weight[2]
        model.model.decoder.layer_norm.bias.add_(lead(model, 2, ends) * row / row.square().sum())
    model.generation_config = GenerationConfig(
        num_beams=5, max_length=100, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2
    )
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def lead(model: Any, eos: int, share: float) -> float:
    """Return how much to raise the end token's logit to make it the largest at this share of steps."""
    ids = torch.randint(4, min(model.config.vocab_size, 250), (32, 9))
    result = model.generate(
        ids,
        max_length=25,
        num_beams=1,
        suppress_tokens=[eos],
        output_logits=True,
        return_dict_in_generate=True,
        forced_eos_token_id=None,
    )
    logits = torch.cat(result.logits)
    return float((logits.amax(-1) - logits[:, eos]).quantile(share))


@torch.no_grad()
def scale(model: Any, seed: int) -> None:
    """Draw weights that produce peaked outputs."""
    torch.manual_seed(seed)
    width = model.config.d_model
    for name, parameter in model.named_parameters():
        if "embed_positions" in name:
            continue
        if "norm" in name:
            parameter.normal_(float(name.endswith("weight")), 0.1)
        elif "embed_tokens" in name or "shared" in name or "lm_head" in name:
            parameter.normal_(std=1 / width**0.5)
        elif name.endswith("bias"):
            parameter.normal_(std=0.1)
        else:
            # what is read from the source outweighs the previous token
            gain = (
                1.6
                if "q_proj" in name or "k_proj" in name
                else 3.0
                if "encoder_attn" in name
                else 4.0
                if "fc" in name
                else 1.6
            )
            parameter.normal_(std=gain / parameter.shape[1] ** 0.5)
        if name.endswith("fc2.weight"):
            # activations have a mean, which would affect every output
            parameter.sub_(parameter.mean(1, keepdim=True))
    # otherwise an output equal to the embedding repeats its token
    stack = model.model.decoder
    last = stack.layer_norm if hasattr(stack, "layer_norm") else stack.layers[-1].final_layer_norm
    last.weight.normal_(std=2.5)
    if hasattr(model.model, "shared"):
        for embedding in {
            id(one): one for one in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens)
        }.values():
            embedding.weight[model.config.pad_token_id] = 0

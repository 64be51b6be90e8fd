"""Marian's own files, written here, against a plain float64 evaluation of the paper's equations."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from attent.errors import DataError, RunError
from attent.ops.packed_linear import WeightType, kind_of
from attent.runs.hugging_face import import_run
from attent.runs.hugging_face.marian import ids_of, settings_of
from attent.search.settings import SearchSettings
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.translator import Translator, load

WHO, WHAT = ("A dog", "The cat", "She", "Two men", "Nobody"), ("sings", "runs", "reads a book", "looks")
WHERE = ("here", "in the park", "at home")
LINES = [f"{who} {what} {where}." for who in WHO for what in WHAT for where in WHERE]
WIDTH, HIDDEN, HEADS, ENCODER, DECODER, LARGEST = 32, 48, 4, 2, 2, 127
EOS, UNK = 0, 1
# By one vocabulary and recurrent decoder: models whose translations differ.
SEEDS = {(True, True): 0, (True, False): 1, (False, True): 0, (False, False): 0}


def vocabulary(kind: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter(LINES[kind::2]), model_writer=model, vocab_size=80 + 8 * kind, model_type="unigram",
        eos_id=EOS, unk_id=UNK, bos_id=-1, pad_id=-1, byte_fallback=False, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def parameters(sizes: tuple[int, int], *, shared: bool, recurrent: bool = True, seed: int = 0) -> dict[str, np.ndarray]:
    """Random parameters by Marian's names, such that weights are peaked."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (random.uniform(-1, 1, shape) * scale * math.sqrt(6 / sum(shape))).astype(np.float32)

    def attention(prefix: str) -> dict[str, np.ndarray]:
        parts = {f"{prefix}_W{part}": matrix(WIDTH, WIDTH, scale=4.0) for part in "qkvo"}
        return parts | {f"{prefix}_b{part}": matrix(1, WIDTH) for part in "qkvo"} | norm(f"{prefix}_Wo")

    def norm(prefix: str) -> dict[str, np.ndarray]:
        return {f"{prefix}_ln_scale": 1 + matrix(1, WIDTH), f"{prefix}_ln_bias": matrix(1, WIDTH)}

    def feed_forward(prefix: str) -> dict[str, np.ndarray]:
        parts = {"W1": (WIDTH, HIDDEN), "b1": (1, HIDDEN), "W2": (HIDDEN, WIDTH), "b2": (1, WIDTH)}
        return {f"{prefix}_{part}": matrix(*shape, scale=3.0) for part, shape in parts.items()} | norm(f"{prefix}_ffn")

    found = {"Wemb": matrix(sizes[0], WIDTH, scale=2.0)} if shared else {}
    if not shared:
        found = {"encoder_Wemb": matrix(sizes[0], WIDTH, scale=2.0), "decoder_Wemb": matrix(sizes[1], WIDTH, scale=2.0)}
    found["decoder_ff_logit_out_b"] = matrix(1, sizes[1])
    for layer in range(1, ENCODER + 1):
        found |= attention(f"encoder_l{layer}_self") | feed_forward(f"encoder_l{layer}_ffn")
    for layer in range(1, DECODER + 1):
        rnn = f"decoder_l{layer}_rnn"
        unit = {f"{rnn}_W": matrix(WIDTH, WIDTH), f"{rnn}_Wf": matrix(WIDTH, WIDTH), f"{rnn}_bf": matrix(1, WIDTH)}
        found |= unit | norm(f"{rnn}_ffn") if recurrent else attention(f"decoder_l{layer}_self")
        found |= attention(f"decoder_l{layer}_context") | feed_forward(f"decoder_l{layer}_ffn")
    return found


def settings(*, shared: bool, recurrent: bool = True, **changes: object) -> str:
    values = {
        "type": "transformer", "dim-emb": WIDTH, "enc-depth": ENCODER, "dec-depth": DECODER, "transformer-heads": HEADS,
        "transformer-dim-ffn": HIDDEN, "transformer-ffn-activation": "relu", "transformer-postprocess": "dan",
        "transformer-preprocess": '""', "transformer-decoder-autoreg": "rnn" if recurrent else "self-attention",
        "dec-cell": "ssru" if recurrent else "gru", "tied-embeddings-all": shared, "tied-embeddings": not shared,
        "transformer-tied-layers": "\n  []", "version": "v1.12.14", "transformer-guided-alignment-layer": "last",
    }  # fmt: skip
    return "".join(f"{key}: {str(value).lower()}\n" for key, value in (values | changes).items())


def rounded(name: str, array: np.ndarray) -> tuple[np.ndarray, np.float32] | None:
    """The 8 bits of a matrix, and their multiplier."""
    if "_b" in name or "_ln" in name:
        return None
    multiplier = np.float32(LARGEST) / np.abs(array).max()
    return np.rint(array * multiplier).astype(np.int8), multiplier


def binary(arrays: dict[str, np.ndarray], text: str, alphas: float | None = None) -> bytes:
    """A .bin file; with alphas, of 8 bits."""
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, array in arrays.items():
        pair = None if alphas is None else rounded(name, array)
        if pair is None or alphas is None:
            items.append((name, 0x0404, array.shape, array.tobytes()))
            continue
        numbers = pair[0] if "Wemb" in name else pair[0].T
        items.append((name, 0x4101, array.shape, numbers.tobytes() + pair[1].tobytes()))
        alpha = np.float32(alphas).tobytes() if "Wemb" not in name else b"\x7f" + np.float32(127 / alphas).tobytes()
        items.append((f"{name}_QuantMultA", 0x4101 if "Wemb" in name else 0x0404, (1, 1), alpha))
    padded = [(*item[:3], item[3].ljust(-(-len(item[3]) // 256) * 256, b"\0")) for item in items]
    padded.append(("special:model.yml", 0x0101, (len(text) + 1,), text.encode() + b"\0"))
    head = struct.pack("<QQ", 1, len(padded))
    head += b"".join(
        struct.pack("<4Q", len(name) + 1, kind, len(shape), len(data)) for name, kind, shape, data in padded
    )
    head += b"".join(name.encode() + b"\0" for name, *_ in padded)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in padded)
    offset = 256 - (len(head) + 8) % 256
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(data for *_, data in padded)


class Reference:
    """The equations, in float64, of Vaswani et al. (2017) and Kim et al. (2019) in Marian's arrangement."""

    def __init__(self, arrays: dict[str, np.ndarray], *, recurrent: bool = True) -> None:
        self.p = {name: torch.from_numpy(array).double() for name, array in arrays.items()}
        self.recurrent, self.rounded = recurrent, lambda x: x
        # the smallest difference of the two largest logits in the last translation
        self.margin = math.inf
        # the weights of each attention in the last evaluation, (H, Tq, Tk)
        self.weights: dict[str, torch.Tensor] = {}

    def add_norm(self, name: str, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        total = x + f
        centered = total - total.mean(-1, keepdim=True)
        normalized = centered / (centered.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return normalized * self.p[f"{name}_ln_scale"] + self.p[f"{name}_ln_bias"]

    def linear(self, name: str, part: str, x: torch.Tensor) -> torch.Tensor:
        return self.rounded(x) @ self.p[f"{name}_W{part}"] + self.p[f"{name}_b{part}"]

    def attend(self, name: str, x: torch.Tensor, memory: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
        q, k, v = (
            self.linear(name, part, of).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for part, of in (("q", x), ("k", memory), ("v", memory))
        )
        scores = q @ k.mT / math.sqrt(WIDTH / HEADS)
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        weights = self.weights[name] = scores.softmax(-1)
        return self.add_norm(f"{name}_Wo", x, self.linear(name, "o", (weights @ v).transpose(0, 1).flatten(1)))

    def feed(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.add_norm(f"{name}_ffn", x, self.linear(name, "2", self.linear(name, "1", x).relu()))

    def unit(self, name: str, x: torch.Tensor) -> torch.Tensor:
        forget, entered = self.linear(name, "f", x).sigmoid(), self.rounded(x) @ self.p[f"{name}_W"]
        cell, cells = torch.zeros(WIDTH, dtype=torch.float64), []
        for f, new in zip(forget, entered, strict=True):
            cell = f * cell + (1 - f) * new
            cells.append(cell)
        return self.add_norm(f"{name}_ffn", x, torch.stack(cells).relu())

    def embed(self, vectors: torch.Tensor) -> torch.Tensor:
        half = WIDTH // 2
        angles = torch.arange(len(vectors))[:, None] * 10000.0 ** (-torch.arange(half).double() / (half - 1))
        return vectors * math.sqrt(WIDTH) + torch.cat((angles.sin(), angles.cos()), 1)

    def logits(self, source: list[int], target: list[int]) -> torch.Tensor:
        table = self.p.get("Wemb", self.p.get("encoder_Wemb"))
        own = self.p.get("Wemb", self.p.get("decoder_Wemb"))
        assert table is not None and own is not None
        memory = self.embed(table[source])
        for layer in range(1, ENCODER + 1):
            memory = self.attend(f"encoder_l{layer}_self", memory, memory)
            memory = self.feed(f"encoder_l{layer}_ffn", memory)
        x = self.embed(torch.cat((own.new_zeros(1, WIDTH), own[target])))
        for layer in range(1, DECODER + 1):
            name = f"decoder_l{layer}"
            x = self.unit(f"{name}_rnn", x) if self.recurrent else self.attend(f"{name}_self", x, x, causal=True)
            x = self.feed(f"{name}_ffn", self.attend(f"{name}_context", x, memory))
        return self.rounded(x) @ own.T + self.p["decoder_ff_logit_out_b"]

    def greedy(self, source: list[int], limit: int) -> list[int]:
        target: list[int] = []
        self.margin = math.inf
        while len(target) < limit:
            logits = self.logits(source, target)[-1]
            logits[UNK] = -math.inf
            best, other = logits.topk(2).values.tolist()
            self.margin = min(self.margin, best - other)
            target.append(int(logits.argmax()))
            if target[-1] == EOS:
                break
        return [token for token in target if token != EOS]


class Model:
    """A folder as Firefox has it, and what it translates."""

    def __init__(
        self, folder: Path, *, shared: bool, recurrent: bool = True, alphas: float | None = None, **changes: object
    ) -> None:
        self.folder, self.alphas, self.margins = folder, alphas, dict[str, float]()
        self.models = [vocabulary(kind) for kind in ((1, 1) if shared else (0, 1))]
        self.processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in self.models]
        sizes = [-(-processor.GetPieceSize() // 8) * 8 for processor in self.processors]
        arrays = parameters((sizes[0], sizes[1]), shared=shared, recurrent=recurrent, seed=SEEDS[shared, recurrent])
        # rows without a piece
        arrays["decoder_ff_logit_out_b"][:, self.processors[1].GetPieceSize() :] = -99
        self.text = settings(shared=shared, recurrent=recurrent, **changes)
        folder.mkdir()
        end = "intgemm.alphas.bin" if alphas else "bin"
        (folder / f"model.enfr.{end}.gz").write_bytes(gzip.compress(binary(arrays, self.text, alphas)))
        for name, model in zip(["vocab"] if shared else ["srcvocab", "trgvocab"], self.models, strict=False):
            (folder / f"{name}.enfr.spm").write_bytes(model)
        pairs = {name: rounded(name, array) for name, array in arrays.items()}
        exact = {
            name: arrays[name] if pair is None else pair[0] * (np.float32(1) / pair[1]) for name, pair in pairs.items()
        }
        self.arrays = exact if alphas else arrays
        self.reference = Reference(self.arrays, recurrent=recurrent)

    def source(self, text: str) -> list[int]:
        return [*self.processors[0].EncodeAsIds(text), EOS]

    def translate(self, text: str) -> str:
        source = self.source(text)
        answer = self.processors[1].DecodeIds(self.reference.greedy(source, 2 * len(source)))
        self.margins[text] = self.reference.margin
        return answer

    def clear(self, answers: dict[str, str]) -> dict[str, str]:
        """The translations that no rounding of float32 changes, at least a third."""
        clear = {line: answer for line, answer in answers.items() if self.margins[line] > 1e-3}
        assert len(clear) >= len(answers) / 3
        return clear


def translated(translator: Translator, text: str, limit: int) -> str:
    return translator.search([text], SearchSettings(beam=1, maximum_length=limit))[0][0].text


@pytest.mark.parametrize("alphas", [None, 9.0], ids=["float32", "8 bits"])
@pytest.mark.parametrize("recurrent", [True, False], ids=["ssru", "self-attention"])
@pytest.mark.parametrize("shared", [True, False], ids=["one", "two"])
def test_translations_and_logits_are_those_of_the_equations(
    shared: bool, recurrent: bool, alphas: float | None, tmp_path: Path
) -> None:
    model = Model(tmp_path / "model", shared=shared, recurrent=recurrent, alphas=alphas)
    config = import_run(model.folder, tmp_path / "run")
    assert config.languages == "en → fr"
    translator = load(tmp_path / "run", dtype="float32")
    answers = {line: model.translate(line) for line in LINES[::4]}
    assert len(set(answers.values())) > len(answers) / 2
    for line, answer in model.clear(answers).items():
        assert translated(translator, line, 2 * len(model.source(line))) == answer
    line = LINES[8]
    target = translator.target_tokenizer.encode(answers[line])
    pieces = [translator.target_tokenizer.piece(token) for token in target]
    expected = model.reference.logits(model.source(line), [model.processors[1].PieceToId(piece) for piece in pieces])
    source = torch.tensor([translator.read(line).ids])
    with torch.no_grad():
        memory = translator.model.encode(source, torch.tensor([source.shape[1]]))
        logits = translator.model.output(translator.model.decode(memory, torch.tensor([[2, *target]])))[0]
    ids = [
        model.processors[1].PieceToId(translator.target_tokenizer.piece(token)) for token in range(4, logits.shape[1])
    ]
    known = [(token, own) for token, own in enumerate(ids, 4) if own not in (EOS, UNK)]
    ours, theirs = (torch.tensor(column) for column in zip(*known, strict=True))
    torch.testing.assert_close(logits[:, ours].double(), expected[:, theirs], atol=1e-4, rtol=1e-4)


@pytest.mark.needs_native
def test_8_bits_keep_their_numbers_and_may_round_activations_by_the_file_s_factors(tmp_path: Path) -> None:
    model = Model(tmp_path / "model", shared=True, alphas=9.0)
    import_run(model.folder, tmp_path / "computed")
    import_run(model.folder, tmp_path / "fixed", fixed_activations=True)
    ways: dict[str, tuple[WeightType, Callable[[torch.Tensor], torch.Tensor]]] = {
        "computed": (WeightType.INT8, by_row),
        "fixed": (WeightType.INT8_FIXED, lambda x: (x * 9.0).round().clamp(-127, 127) / 9.0),
    }
    for name, (kind, rounding) in ways.items():
        translator, model.reference.rounded = load(tmp_path / name), rounding
        assert kind_of(translator.model.decoder) is kind
        equal = [
            translated(translator, line, 2 * len(model.source(line))) == model.translate(line) for line in LINES[::4]
        ]
        # a number at the border of two roundings may become either
        assert sum(equal) > 0.8 * len(equal), name


@pytest.mark.parametrize(("named", "layer"), [("last", 2), (1, 1)])
def test_alignments_are_those_of_the_head_that_marian_trains_for_them(
    named: str | int, layer: int, tmp_path: Path
) -> None:
    model = Model(tmp_path / "model", shared=True, **{"transformer-guided-alignment-layer": named})
    import_run(model.folder, tmp_path / "run")
    translator = load(tmp_path / "run", dtype="float32")
    heads, steps = {(number, head): 0 for number in (1, 2) for head in range(HEADS)}, 0
    for line in LINES[::6]:
        translation = translator.search([line], SearchSettings(beam=1, maximum_length=12))[0][0]
        links = Alignment.of(translator, [translation], unit="tokens")[0].links
        pieces = [translator.target_tokenizer.piece(token) for token in translation.tokens]
        model.reference.logits(model.source(line), [model.processors[1].PieceToId(piece) for piece in pieces])
        steps += len(pieces)
        for number, head in heads:
            rows = model.reference.weights[f"decoder_l{number}_context"][head, : len(pieces)]
            heads[number, head] += sum((int(row.argmax()), step) in links for step, row in enumerate(rows))
    assert heads.pop((layer, 0)) == steps > 1.5 * max(heads.values())


def by_row(x: torch.Tensor) -> torch.Tensor:
    largest = x.abs().amax(-1, keepdim=True)
    return (x * 127 / largest).round() * largest / 127


def without_yaml(folder: Path) -> None:
    (folder / "model.enfr.bin.gz").unlink()
    (folder / "model.enfr.bin").write_bytes(struct.pack("<QQ", 1, 0) + struct.pack("<Q", 0))


def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        file = folder / "model.enfr.bin.gz"
        file.write_bytes(gzip.compress(change(gzip.decompress(file.read_bytes()))))

    return write


def other_model(folder: Path, content: bytes) -> None:
    (folder / "model.enfr.bin.gz").unlink()
    (folder / "other.npz").write_bytes(content)


def texts() -> bytes:
    """An .npz whose arrays are texts."""
    file = io.BytesIO()
    np.savez(file, Wemb=np.array([["a", "b"]]))
    return file.getvalue()


def replaced(before: bytes, after: bytes) -> Callable[[Path], None]:
    return changed(lambda content: content.replace(before, after, 1))


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut": (changed(lambda content: content[:-5000]), "does not fit its header"),
    "version": (changed(lambda content: b"\2" + content[1:]), "version must be 1, got 2"),
    "type": (changed(lambda content: content[:24] + b"\7" + content[25:]), "numbers of type 0x407"),
    "axes": (changed(lambda content: content[:32] + b"\x63" + content[33:]), "has 99 axes"),
    "shape": (replaced(struct.pack("<2i", 1, WIDTH), struct.pack("<2i", 1, 2**30)), "fit"),
    "no settings": (without_yaml, "has no special:model.yml"),
    "cell": (replaced(b"dec-cell: ssru", b"dec-cell: lstm"), "dec-cell must be 'ssru'"),
    "norm": (replaced(b"postprocess: dan", b"postprocess: da "), "postprocess must be 'dan'"),
    "name": (replaced(b"decoder_l1_rnn_Wf\0", b"decoder_l1_rnn_Wx\0"), "belongs to a recurrent decoder"),
    "bomb": (lambda folder: (folder / "model.enfr.bin.gz").write_bytes(gzip.compress(bytes(2**27))), "bytes unpacked"),
    "alignment": (replaced(b"alignment-layer: last", b"alignment-layer: 0003"), "must be 'last' or from 1 to 2"),
    "no bias": (replaced(b"decoder_ff_logit_out_b\0", b"decoder_ff_logit_out_c\0"), "cannot be omitted"),
    "not a zip": (lambda folder: other_model(folder, b"PK\3\4" + bytes(99)), "other.npz is damaged"),
    "no numbers": (lambda folder: other_model(folder, texts()), "other.npz is damaged"),
    "hash": (
        lambda folder: (folder / "metadata.json").write_text('{"hash": "ab"}'),
        "SHA-256 of model.enfr.bin.gz does not match metadata.json",
    ),
    "two models": (lambda folder: (folder / "other.bin").write_bytes(b""), "must have one model"),
    "no vocabulary": (lambda folder: (folder / "vocab.enfr.spm").unlink(), "must have vocab"),
    "not a vocabulary": (lambda folder: (folder / "vocab.enfr.spm").write_bytes(b"x" * 99), "vocab.enfr.spm"),
}  # fmt: skip


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Model(tmp_path_factory.mktemp("marian") / "model", shared=True).folder


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_folder_is_refused_in_one_line(name: str, intact: Path, tmp_path: Path) -> None:
    change, says = REFUSED[name]
    shutil.copytree(intact, tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(RunError, match=says) as refusal:
        import_run(tmp_path / "model", tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_native_folder_of_opus_has_its_ids_in_other_files(tmp_path: Path) -> None:
    model = Model(tmp_path / "plain", shared=True, recurrent=False)
    folder = tmp_path / "opus"
    folder.mkdir()
    text = np.frombuffer(model.text.encode() + b"\0", np.int8)
    np.savez(folder / "opus.npz", **model.arrays, **{"special:model.yml": text})
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(model.models[0])
    pieces = [model.processors[0].IdToPiece(token) for token in range(model.processors[0].GetPieceSize())]
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {token}\n" for token, piece in enumerate(pieces))
    (folder / "opus.vocab.yml").write_text("".join(lines), encoding="utf-8")
    decoder = (
        "relative-paths: true\nmodels:\n  - opus.npz\nvocabs:\n  - opus.vocab.yml\n  - opus.vocab.yml\nbeam-size: 6\n"
    )
    (folder / "decoder.yml").write_text(decoder)
    import_run(folder, tmp_path / "run", "en", "fr")
    translator = load(tmp_path / "run")
    for line, answer in model.clear({line: model.translate(line) for line in LINES[::5]}).items():
        assert translated(translator, line, 2 * len(model.source(line))) == answer


def test_settings_are_read_line_by_line() -> None:
    text = b'# Marian\nmodels:\n  - a.npz\n  - \'b.npz\'\nvocabs: [x.yml, "y.yml"]\ntype: transformer\npreprocess: ""\n'
    assert settings_of(text) == {
        "models": ["a.npz", "b.npz"], "vocabs": ["x.yml", "y.yml"], "type": "transformer", "preprocess": ""
    }  # fmt: skip


@pytest.mark.parametrize("text", ["</s>: 0\n'it''s': 1\n\"\\u2581a\": 2\n", '{"</s>": 0, "it\'s": 1, "▁a": 2}'])
def test_ids_are_yaml_or_json(text: str) -> None:
    assert ids_of(text) == {"</s>": 0, "it's": 1, "▁a": 2}


@pytest.mark.parametrize("text", ["a: 0\nb: 0\n", "a: x\n", '{"a": -1}', '{"a": 1.0}', "[", '"a: 1\n'])
def test_ids_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="must map pieces to"):
        ids_of(text)


def test_factors_that_are_missing_are_refused_before_a_run_is_written(intact: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no factors of activations"):
        import_run(intact, tmp_path / "run", fixed_activations=True)
    assert not (tmp_path / "run").exists()


def test_the_hash_of_metadata_is_that_of_the_unpacked_model(intact: Path, tmp_path: Path) -> None:
    shutil.copytree(intact, tmp_path / "model")
    content = gzip.decompress((intact / "model.enfr.bin.gz").read_bytes())
    (tmp_path / "model" / "metadata.json").write_text(json.dumps({"hash": hashlib.sha256(content).hexdigest()}))
    assert import_run(tmp_path / "model", tmp_path / "run").origin["format"] == "Marian"

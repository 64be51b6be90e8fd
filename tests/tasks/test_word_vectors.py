import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing.mutators import toml

from attent.errors import ArgumentError, DataError
from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.runs.config import read_config
from attent.runs.folder import read
from attent.runs.weights import read_tensors
from attent.tasks import recipe
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.word_vectors import check, init_embeddings
from attent.text.settings import VectorsSettings
from attent.text.tokenizer import WordTokenizer
from attent.text.word_vectors import WordVectors, write
from attent.training.checkpoint import latest_checkpoint
from attent.training.progress import Progress

WIDTH = 6
SIZES = {"encoder_layers": 1, "decoder_layers": 1, "width": WIDTH, "feed_forward": 7, "heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": SIZES,
    "rnn": {"kind": "rnn", "embedding_width": WIDTH, "width": 8},
    "luong": {"kind": "rnn", "embedding_width": WIDTH, "width": 8, "attention": "luong"},
}
SOURCE = WordTokenizer([" the", " Cat", " sat", " on", " mat"])
TARGET = WordTokenizer([" die", " Katze", " sitzt"])


def corpus_settings(kind: str, **changes: Any) -> Any:
    values = MODELS[kind] | changes
    return (RnnSettings if "kind" in values else TransformerSettings).model_validate(values)


def file_of(folder: Path, *words: str, width: int = WIDTH, name: str = "glove.txt") -> str:
    generator = torch.Generator().manual_seed(7)
    write(folder / name, WordVectors(words, 0.3 * torch.randn(len(words), width, generator=generator)))
    return str(folder / name)


@pytest.mark.parametrize("kind", MODELS)
def test_words_with_a_vector_start_from_it_and_the_others_as_ever(tmp_path: Path, kind: str) -> None:
    settings = corpus_settings(kind, share_embeddings="none")
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(build(settings, SOURCE.size, TARGET.size))
    plain, model = models
    file = file_of(tmp_path, "mat", "the", "cat", "dog")
    coverage, report = init_embeddings(VectorsSettings(source=file), model, {"source": SOURCE, "target": TARGET})
    result = [SOURCE.encode(word)[0] for word in ("mat", "the", "Cat")]
    features, before = (module.embeddings["source"](torch.arange(SOURCE.size)[None])[0] for module in (model, plain))
    assert features[result].square().mean().item() == pytest.approx(1, rel=1e-5)
    lines = Path(file).read_text().splitlines()[1:]
    vectors = torch.tensor([[float(part) for part in line.split()[1:]] for line in lines])
    # all by one number
    ratios = features[result] / vectors[:3]
    torch.testing.assert_close(ratios, ratios[0, 0].expand_as(ratios))
    others = [token for token in range(SOURCE.size) if token not in result]
    assert features[others].equal(before[others])
    untouched = {name for name, weight in model.state_dict().items() if weight.equal(plain.state_dict()[name])}
    assert len(model.state_dict()) - len(untouched) == 1
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert coverage == {"source": {"tokens": 5, "found": 3}}
    assert report[-1].startswith("source: 3 of the vocabulary's 5 start from a vector, ")


def test_few_words_are_warned_about_and_none_is_an_error(tmp_path: Path) -> None:
    model = build(corpus_settings("transformer"), SOURCE.size, TARGET.size)
    options = {"source": SOURCE, "target": TARGET}
    report = init_embeddings(VectorsSettings(target=file_of(tmp_path, "die", "dog")), model, options)[1]
    assert report[-1].startswith("warning: ") and "has few words of the target's vocabulary: it should" in report[-1]
    with pytest.raises(ArgumentError, match=r"^no word of the source's vocabulary has a vector in .*glove.txt$"):
        init_embeddings(VectorsSettings(source=file_of(tmp_path, "die", "dog")), model, options)
    (tmp_path / "zero.txt").write_text("mat" + " 0" * WIDTH)
    with pytest.raises(ArgumentError, match=r"has a vector in .*zero.txt, except zero vectors$"):
        init_embeddings(VectorsSettings(source=str(tmp_path / "zero.txt")), model, options)


def test_what_does_not_suit_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    def checked(kind: str, share: str = "target", **vectors: Any) -> None:
        model = corpus_settings(kind, share_embeddings=share).model_dump()
        tables = {"model": model, "training": {"updates": 1, "batch_pairs": 8}, "vectors": vectors}
        check(RunSettings.model_validate(tables))

    file, wide = file_of(tmp_path, "a", "b"), file_of(tmp_path, "a", "b", width=7, name="wide.vec")
    for kind, name in (("transformer", "width"), ("luong", "embedding_width")):
        checked(kind, source=file, target=file)
        checked(kind, source=file, frozen=True)
        checked(kind, "none", source=file, target=file, frozen=True)
        checked(kind, "all", source=file)
        with pytest.raises(
            ArgumentError, match=rf"wide.vec has vectors of 7 .* embedding has 6: set model.{name} = 7$"
        ):
            checked(kind, source=wide)
    with pytest.raises(ArgumentError, match=r"give word vectors for one of them$"):
        checked("transformer", "all", source=file, target=file)
    for share, vectors in (("target", {"source": file, "target": file}), ("all", {"source": file})):
        side = next(reversed(vectors))
        with pytest.raises(ArgumentError, match=rf"^the {side}'s embedding cannot be frozen .*_embeddings = \"none\"$"):
            checked("luong", share, frozen=True, **vectors)
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        checked("rnn", source=str(tmp_path / "nowhere"))


LINES = [
    ("the cat sat", "die Katze sitzt"), ("the mat", "die Matte"), ("a cat", "eine Katze"),
    ("The dog sat", "der Hund sitzt"),
] * 10  # fmt: skip
TRAINING = {"batch_pairs": 8, "precision": "float32", "threads": 1}


def recipe_of(folder: Path, kind: str = "transformer", **training: Any) -> RunSettings:
    lines = [f"{source} {n % 5}\t{target}\n" for n, (source, target) in enumerate(LINES)]
    (folder / "pairs.tsv").write_text("".join(lines))
    model = corpus_settings(kind, **({"dropout": 0.1} if kind == "transformer" else {}))
    tables = {
        "text": {"train": str(folder / "pairs.tsv"), "tokenizer": "word"},
        "vectors": {"source": file_of(folder, "cat", "the", "sat", "mat"), "frozen": True},
        "model": model.model_dump(exclude_none=True),
        "training": TRAINING | {"updates": 6, "save_every": 2, "keep_last": 9} | training,
    }
    return parse(toml(tables), "test")


@pytest.mark.parametrize(("kind", "averaging"), [("transformer", "ema"), ("rnn", "none"), ("luong", "last")])
def test_frozen_embeddings_end_as_they_started(tmp_path: Path, kind: str, averaging: str) -> None:
    progress = Progress(io.StringIO())
    settings = recipe_of(tmp_path, kind, averaging=averaging, last_every=2, last=3, weight_decay=0.1)
    follow(settings, tmp_path / "run", progress=progress)
    run = read(tmp_path / "run")
    torch.manual_seed(settings.training.seed)
    sizes = run.source_tokenizer.size, run.target_tokenizer.size
    initial = build(settings.model, *sizes)
    init_embeddings(settings.vectors, initial, {"source": run.source_tokenizer, "target": run.target_tokenizer})
    assert run.model.embeddings["source"].weight.equal(initial.embeddings["source"].weight)
    changed = [name for name, weight in run.model.state_dict().items() if not weight.equal(initial.state_dict()[name])]
    assert any("target_embedding" in name for name in changed)
    moments = read_tensors((latest_checkpoint(tmp_path / "run") or tmp_path) / "optimizer.safetensors")
    assert moments and not any("source_embedding" in name for name in moments)
    config = read_config(tmp_path / "run")
    assert config.vectors == settings.vectors
    # the, The, cat, sat and mat of these, a, dog and the numbers
    assert config.coverage["source"]["found"] == 5
    assert "source: 5 of the vocabulary's" in progress.stream.getvalue()


def test_a_run_with_frozen_embeddings_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = recipe_of(tmp_path, "transformer", averaging="ema")
    follow(settings, whole)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(recipe, "train", stop)
        follow(settings, tmp_path / "new")
    shutil.copytree(whole, broken)
    for update in ("00000004", "00000006"):
        shutil.rmtree(broken / "checkpoints" / update)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"state": "unfinished"}))
    # what was read at the start need not be there
    (tmp_path / "glove.txt").unlink()
    for run in (broken, tmp_path / "new"):
        resume(run)
        assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        assert read_config(run).coverage == read_config(whole).coverage


def test_vectors_go_neither_with_another_runs_weights_nor_without_text(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"not from both: \S+ and --init-from"):
        follow(recipe_of(tmp_path), tmp_path / "run", init_from=tmp_path / "other")
    assert not (tmp_path / "run").exists()
    tables = {"task": "classify", "images": {"source": "digits"}, "training": {"updates": 1, "batch_pairs": 8}}
    for side in ("text", "source"):
        settings = RunSettings.model_validate(tables | {"vectors": {side: file_of(tmp_path, "a", width=128)}})
        with pytest.raises(ArgumentError, match=f"embeds no words, but {side} has word vectors$"):
            check(settings)
    tables |= {"task": "fill-mask", "lines": {"train": "a.txt"}, "vectors": {"source": file_of(tmp_path, "a")}}
    with pytest.raises(ArgumentError, match="a run that fills blanks embeds text, not source, which has word vectors"):
        check(RunSettings.model_validate({key: value for key, value in tables.items() if key != "images"}))

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing.mutators import toml

from attent.errors import ArgumentError, DataError, RunError
from attent.models.settings import RnnSettings
from attent.runs.config import read_config
from attent.search.settings import SearchSettings
from attent.tasks import recipe
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.translation.translator import load
from attent.training.checkpoint import latest_checkpoint, read_state
from attent.training.progress import Progress

SMALL = "encoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2"
DATES = "training_pairs = 53\nvalidation_pairs = 5\nheld_out_dates = 31\nheld_out_pairs = 7\nheld_out_combinations = 2"
TRAINING = '[training]\nupdates = 3\nbatch_pairs = 8\nprecision = "float32"'
TINY = parse(f'[dates]\nlocales = ["en", "de"]\n{DATES}\n[model]\n{SMALL}\n{TRAINING}', "tiny.toml")


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "run"
    follow(TINY, path)
    return path


def test_a_recipe_ends_in_a_run_folder_that_suffices(tmp_path: Path) -> None:
    progress = Progress(io.StringIO())
    results = follow(TINY, tmp_path / "run", progress=progress)
    printed = progress.stream.getvalue()
    assert any(line.startswith("about 0:0") for line in printed.splitlines())
    assert list(results) == ["held-out dates", "held-out combinations"]
    for scores in results.values():
        assert set(scores) == {"pairs", "exact_match", "year_alignment", "AER"}
        assert scores["pairs"] == 7 and 0 <= scores["year_alignment"] <= 100 and 0 <= scores["AER"] <= 1
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["results"] == results
    assert config["corpus"]["dates"]["locales"] == ["en", "de"]
    assert config["training"]["outcome"]["updates"] == 3
    assert len(load(tmp_path / "run").translate(["en | March 3, 2026", ""])) == 2


def test_a_run_trained_with_r_drop_is_validated_but_not_resumed(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    config = json.loads((run / "config.json").read_text())
    config["training"]["r_drop"] = 3.0
    (run / "config.json").write_text(json.dumps(config))
    assert recipe.validate(run, load(run).model, print) == config["results"]
    with pytest.raises(ArgumentError, match=r"run was trained with R-Drop, which attent no longer has"):
        resume(run, {"updates": 4})


@pytest.mark.parametrize("attention", ["none", "luong"])
def test_a_recurrent_network_goes_the_same_way(tmp_path: Path, attention: str) -> None:
    model = RnnSettings.model_validate({"attention": attention, "embedding_width": 5, "width": 6})
    results = follow(TINY.model_copy(update={"model": model}), tmp_path / "run")
    for scores in results.values():
        assert ("year_alignment" in scores) is ("AER" in scores) is (attention != "none")
    maps = load(tmp_path / "run").map("en | March 3, 2026", "2026-03-03")
    expected = [] if attention == "none" else [("decoder.cross_attention", (1, 1, 11, 18), 11)]
    assert [(name, item.weights.shape, len(item.rows)) for name, item in maps.items()] == expected


STORIES = ["Ben ran. Ann sat. Who ran?\tBen", "Ann ran. Who ran?\tAnn", "Ben sat! Who sat?\tBen", "Who\tAnn"]


def sentence_settings(folder: Path, lines: list[str], **model: Any) -> RunSettings:
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    (folder / "valid.tsv").write_text(f"{lines[-1]} Cid\n")
    text = {"train": str(folder / "pairs.tsv"), "valid": str(folder / "valid.tsv"), "tokenizer": "char"}
    values = {"kind": "rnn", "embedding_width": 5, "width": 6, "share_embeddings": "none", **model}
    training = {"updates": 3, "batch_pairs": 2, "precision": "float32"}
    return RunSettings.model_validate({"text": text, "model": values, "training": training})


@pytest.mark.parametrize("sentences", ["vectors", "words"])
def test_an_encoder_of_sentences_finds_their_ends_in_the_vocabulary(tmp_path: Path, sentences: str) -> None:
    run, settings = tmp_path / "run", sentence_settings(tmp_path, STORIES, sentences=sentences)
    follow(settings, run)
    translator, model = load(run), read_config(run).model
    assert isinstance(model, RnnSettings) and model.sentences == sentences
    assert [translator.source_tokenizer.piece(token) for token in sorted(model.sentence_ends)] == [".", "?", "!"]
    texts = [line.split("\t")[0] for line in STORIES]
    # each alone and all together, also with a beam, and the only sentence of the last
    for search in (SearchSettings(), SearchSettings(beam=2)):
        assert translator.translate(texts, search) == [translator.translate(text, search) for text in texts]
    seen = translator.map(texts[0], "Ben")["decoder.cross_attention"]
    spans = translator.model.sentence_spans(translator.source_tokenizer.encode(texts[0]))
    assert ["".join(seen.columns[begin:end]) for begin, end in spans] == ["Ben ran.", " Ann sat.", " Who ran?"]
    assert seen.weights.grouped([(0, 1), (1, 4)], spans).shape == (1, 1, 2, 3)
    resume(run, {"updates": 5})
    assert read_config(run).model == model


def test_sentences_need_a_sign_that_ends_them(tmp_path: Path) -> None:
    settings = sentence_settings(tmp_path, ["Ben ran\tBen", "Ann sat\tAnn"], sentences="words")
    with pytest.raises(
        ArgumentError, match=r"^model\.sentences = \"words\" needs from 1 to 1,024 source tokens .* got 0"
    ):
        follow(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    named = sentence_settings(tmp_path, ["Ben ran\tBen", "Ann sat\tAnn"], sentences="words", sentence_ends=(4,))
    follow(named, tmp_path / "run")
    assert read_config(tmp_path / "run").model == named.model


LAST = "checkpoints/00000250"


def longer(**values: object) -> RunSettings:
    base_settings = {"threads": 1, "schedule": "cosine", "label_smoothing": 0.1}
    return TINY.model_copy(update={"training": TINY.training.model_copy(update=base_settings | values)})


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def started(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A process that trains in the folder and has written a checkpoint."""
    before, deadline = latest_checkpoint(folder), time.monotonic() + 60
    command = [sys.executable, "-m", "attent", "train", "--device", "cpu", *arguments]
    with (folder.parent / "printed").open("w") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed)
    while latest_checkpoint(folder) in (None, before) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return process


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="nothing kills as SIGKILL does")
def test_a_run_that_is_killed_ends_with_the_weights_of_one_that_is_not(tmp_path: Path) -> None:
    settings = longer(updates=250, save_every=20, validate_every=50)
    follow(settings, tmp_path / "whole")
    file = tmp_path / "tiny.toml"
    file.write_text(toml(settings.model_dump(mode="json", exclude_none=True)))
    run, dice = tmp_path / "run", random.Random(time.time_ns())
    for arguments in (["--config", str(file), "--out", str(run)], ["--resume", str(run)]):
        process = started(arguments, run)
        time.sleep(0.15 * dice.random())
        process.kill()
        assert process.wait() == -signal.SIGKILL, (tmp_path / "printed").read_text()
    assert read_config(run).state == "unfinished"
    assert 0 < read_state(latest_checkpoint(run)).update < 250
    resume(run)
    assert weights(run) == weights(tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (run / LAST / name).read_bytes() == (tmp_path / "whole" / LAST / name).read_bytes()
    assert read_config(run).results == read_config(tmp_path / "whole").results
    log, expected = (
        [(record["update"], record["validation"]) for record in records(path) if "validation" in record]
        for path in (run, tmp_path / "whole")
    )
    assert log == expected
    updates = [record["update"] for record in records(run) if "loss" in record]
    assert updates == sorted(set(updates))


@pytest.mark.slow
def test_a_run_in_training_is_nobody_elses_until_its_process_ends(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "tiny.toml"
    settings = longer(updates=10**6, save_every=5)
    file.write_text(toml(settings.model_dump(mode="json", exclude_none=True)))
    process = started(["--config", str(file), "--out", str(run)], run)
    try:
        for attempt in (lambda: resume(run), lambda: follow(TINY, run, replace=True)):
            with pytest.raises(RunError, match=r"/run is being trained by another process$"):
                attempt()
        assert process.poll() is None, (tmp_path / "printed").read_text()
    finally:
        process.kill()
        process.wait()
    reached = read_state(latest_checkpoint(run)).update
    resume(run, {"updates": reached + 3})
    assert read_config(run).training["outcome"]["updates"] == reached + 3


@pytest.mark.slow
def test_a_run_that_never_saved_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    follow(longer(), tmp_path / "whole")
    for name, start in (("fresh", None), ("tuned", tmp_path / "whole")):
        follow(longer(), tmp_path / f"{name} whole", init_from=start)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(recipe, "train", stop)
            follow(longer(), tmp_path / name, init_from=start)
        assert latest_checkpoint(tmp_path / name) is None
        resume(tmp_path / name)
        assert weights(tmp_path / name) == weights(tmp_path / f"{name} whole")


def test_another_run_starts_from_weights_and_tokenizers(tmp_path: Path, tiny_run: Path) -> None:
    training = "[training]\nupdates = 1\nbatch_pairs = 8\nlearning_rate = 1e-12\n"
    second = parse(f'[dates]\nlocales = ["de"]\n{DATES}\n{training}'.replace("53", "11"), "other.toml")
    follow(second, tmp_path / "two", init_from=tiny_run)
    first, adapted = load(tiny_run), load(tmp_path / "two")
    assert first.source_tokenizer.size == adapted.source_tokenizer.size
    for left, right in zip(first.model.parameters(), adapted.model.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
    wide = TINY.model_copy(update={"model": TINY.model.model_copy(update={"feed_forward": 19})})
    with pytest.raises(RunError, match=r"must be \(19, 16\), got \(17, 16\) \(settings without \[model\] use that of"):
        follow(wide, tmp_path / "three", init_from=tiny_run)
    assert not (tmp_path / "three").exists()


def test_a_student_of_other_layers_starts_from_those_of_its_teacher(tmp_path: Path, tiny_run: Path) -> None:
    sizes = {"encoder_layers": 3, "decoder_layers": 2}
    training = TINY.training.model_copy(update={"updates": 1, "learning_rate": 1e-12})
    student = TINY.model_copy(update={"model": TINY.model.model_copy(update=sizes), "training": training})
    follow(student, tmp_path / "two", init_from=tiny_run)
    first, second = load(tiny_run).model, load(tmp_path / "two").model
    for actual, expected in ((second.encoder, first.encoder), (second.decoder, first.decoder)):
        for layer in actual.layers:
            torch.testing.assert_close(layer.state_dict(), expected.layers[0].state_dict(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(second.to_logits.weight, first.to_logits.weight, rtol=1e-4, atol=1e-6)
    assert (len(second.encoder.layers), len(second.decoder.layers)) == (3, 2)


def test_own_parts_are_trained_as_the_settings_say_and_gone_on_with_where_trusted(tmp_path: Path) -> None:
    own = TINY.model_copy(update={"model": TINY.model.model_copy(update={"score": "attent.attention.scores.dot:Dot"})})
    refused = r"config\.json: model\.score = 'attent\.attention\.scores\.dot:Dot' would import"
    follow(own, tmp_path / "run")
    with pytest.raises(RunError, match=refused):
        resume(tmp_path / "run", {"updates": 5})
    resume(tmp_path / "run", {"updates": 5}, trust_code=True)
    assert read_config(tmp_path / "run").training["outcome"]["updates"] == 5
    follow(own, tmp_path / "named", init_from=tmp_path / "run")
    unnamed = RunSettings.model_validate({"dates": TINY.dates, "training": TINY.training})
    with pytest.raises(RunError, match=refused):
        follow(unnamed, tmp_path / "unnamed", init_from=tmp_path / "run")
    assert not (tmp_path / "unnamed").exists()
    follow(unnamed, tmp_path / "unnamed", init_from=tmp_path / "run", trust_code=True)
    assert read_config(tmp_path / "unnamed").model == own.model


def test_a_finished_run_goes_on_when_it_is_said_for_how_long(tmp_path: Path) -> None:
    follow(longer(minutes=9.0), tmp_path / "run")
    with pytest.raises(ArgumentError, match="run is finished: give a new limit"):
        resume(tmp_path / "run")
    resume(tmp_path / "run", {"updates": 5})
    training = read_config(tmp_path / "run").training
    assert (training["updates"], training["minutes"], training["outcome"]["updates"]) == (5, None, 5)
    with pytest.raises(ArgumentError, match="a run that goes on keeps its batch_pairs; it may change "):
        resume(tmp_path / "run", {"batch_pairs": 5})
    with pytest.raises(ArgumentError, match="updates: input should be greater than or equal to 1"):
        resume(tmp_path / "run", {"updates": 0})


def test_a_damaged_setting_and_missing_checkpoints_are_named(tmp_path: Path, tiny_run: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint to resume from; --init-from starts"):
        resume(tmp_path / "run", {"updates": 5})
    with pytest.raises(RunError, match="is not a run folder"):
        resume(tmp_path / "elsewhere")
    config = tmp_path / "run" / "config.json"
    content = json.loads(config.read_text())
    content["training"]["batch_pairs"] = -1
    config.write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"config\.json is damaged: training\.batch_pairs: input should be"):
        resume(tmp_path / "run", {"updates": 5})


def test_what_a_model_cannot_read_is_neither_learnt_nor_judged(tmp_path: Path) -> None:
    pairs = [f"{('a b ' * number).strip()}\t{('b a ' * number).strip()}\n" for number in range(1, 24)]
    (tmp_path / "train.tsv").write_text("".join(pairs), encoding="utf-8")
    long = "\t".join(["a b " * 30] * 2)
    (tmp_path / "valid.tsv").write_text(f"c a b\ta b c\n{long}\na c\tc a\n", encoding="utf-8")
    text = f'[text]\ntrain = "{tmp_path}/train.tsv"\nvalid = "{tmp_path}/valid.tsv"\ntokenizer = "word"'
    model = f'[model]\n{SMALL}\nposition = "learned"\nmaximum_length = 20'
    training = "[training]\nupdates = 6\nbatch_pairs = 4\nvalidate_every = 3"
    settings = parse(f"{text}\n{model}\n{training}", "short.toml")
    results = follow(settings, tmp_path / "run")
    assert (results["validation"]["pairs"], results["validation"]["translated"]) == (2, 2)
    translator = load(tmp_path / "run")
    # as long as can be numbered, and no longer
    assert translator.score([(" ".join("a" * 20), " ".join("a" * 19))])[0].tokens == 20
    with pytest.raises(DataError, match="pair 2 has 21 tokens, more than the 20 that this model can read"):
        translator.score([("a", "a"), ("a", " ".join("a" * 20))])


def test_the_time_of_a_training_is_said_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"a {row}\tb {row}\n" for row in range(40)), encoding="utf-8")
    text = f'[text]\ntrain = "{tmp_path}/train.tsv"\ntokenizer = "char"\n'
    recipe_of = f"{text}[model]\n{SMALL}\n[training]\nupdates = 6\nbatch_pairs = 19\n"
    stream = io.StringIO()
    results = follow(parse(recipe_of + "warmup = 0.1", "pairs.toml"), tmp_path / "run", progress=Progress(stream))
    assert results == read_config(tmp_path / "run").results
    lines = stream.getvalue().splitlines()
    # 38 pairs in two batches
    begin = next(row for row, line in enumerate(lines) if line.startswith("about 0:0"))
    assert "on this machine, with 1 validation: 6 updates of " in lines[begin]
    assert lines[begin].endswith(" s, 3 epochs")

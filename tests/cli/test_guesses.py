import json
from pathlib import Path

from attent.cli.guesses import _learnt, said
from attent.decoding.fill_mask import load
from attent.evaluation.masked_lm import MaskedLMReport, MaskedLMScore


def test_a_text_is_guessed_beside_counts(attent, filling_folder: Path) -> None:
    text = filling_folder.parent / "train.txt"
    done = attent("evaluate", filling_folder, "--text", text, "--json")
    found = json.loads("\n".join(done.out))
    assert list(found["ways"]) == ["model", "unigram", "trigram, left", "trigram, both sides"]
    assert (found["lines"], found["unknown"]) == (8, 0)
    assert found["ways"]["trigram, both sides"]["accuracy"] > found["ways"]["unigram"]["accuracy"]
    other = attent("evaluate", filling_folder, "--text", text, "--against", text)
    assert (other.code, other.err) == (0, [f"guessing every word of 8 lines of {text}"])
    assert len(other.out) == 5


def test_without_its_training_text_there_are_no_yardsticks(attent, filling_folder: Path, tmp_path: Path) -> None:
    text, train = filling_folder.parent / "train.txt", tmp_path / "some.txt"
    train.write_text("the dog slept .\n", encoding="utf-8")
    text.rename(tmp_path / "gone.txt")
    try:
        done = attent("evaluate", filling_folder, "--text", train)
    finally:
        (tmp_path / "gone.txt").rename(text)
    assert done.code == 0
    assert done.err[0] == f"no yardsticks: the text that {filling_folder} was trained on is not at {text}; --against FILE names it"
    assert [line.split()[0] for line in done.out] == ["model", "4"]


def test_what_cannot_be_judged_is_said(attent, filling_folder: Path, run_folder: Path, tmp_path: Path) -> None:
    text = filling_folder.parent / "train.txt"
    judged = f"and is judged on a text: attent evaluate {filling_folder} --text FILE"
    says = {
        (
            "evaluate",
            filling_folder,
        ): f"{filling_folder} fills blanks, {judged}",
        ("evaluate", run_folder, "--text", text): f"{run_folder} translates: attent translate {run_folder} TEXT",
        ("evaluate", filling_folder, "--text", tmp_path / "none"): f"{tmp_path / 'none'} cannot be read: No such file or directory",
    }
    for command, line in says.items():
        done = attent(*command)
        assert (done.code, done.out, done.err[-1]) == (2, [], f"attent: {line}")
    (tmp_path / "bird.txt").write_text("bird\n", encoding="utf-8")
    done = attent("evaluate", filling_folder, "--text", tmp_path / "bird.txt")
    assert done.err[-1] == f"attent: {tmp_path / 'bird.txt'} has no word that this model knows"


def test_what_was_left_out_is_said() -> None:
    lines = said(MaskedLMReport(3, 20, 2, 0, {"model": MaskedLMScore(50.0, 12.345)}))
    assert lines == [
        "model  top-1  50.00 %  perplexity    12.35",
        "20 blanks, each alone in one of 3 lines; 2 words that the model does not know left out",
    ]


def test_what_is_counted_is_what_was_learnt(attent, tmp_path: Path) -> None:
    """Neither what the run was validated on nor what was too long for it."""
    (tmp_path / "train.txt").write_text("the dog slept .\nthe cat ran .\na bird a bird a bird a bird\n" * 4, encoding="utf-8")
    (tmp_path / "valid.txt").write_text("the cat ran .\n", encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'task = "fill-mask"\n[lines]\ntrain = "{tmp_path}/train.txt"\nvalid = "{tmp_path}/valid.txt"\ntokenizer = "word"\n'
        "maximum_length = 6\n[model]\nlayers = 1\nwidth = 8\nfeed_forward = 7\nheads = 2\n[training]\nupdates = 2\nbatch_pairs = 4\n",
        encoding="utf-8",
    )
    assert attent("train", "--config", tmp_path / "recipe.toml", "--out", tmp_path / "run").code == 0
    counted = _learnt(tmp_path / "run", (tokenizer := load(tmp_path / "run").tokenizer))
    assert counted is not None
    assert [tokenizer.decode(tokens) for tokens in counted] == ["the dog slept ."] * 4

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from fuzzing.mutators import mutate_bytes, mutate_file, mutate_json, mutate_text, replace_file

DOCUMENT = {"model": {"width": 16, "score": "dot"}, "files": ["inputs.json"], "tokenizers": {"source": "char"}}


@pytest.mark.parametrize(
    "mutate", [mutate_bytes, lambda data, dice: mutate_text(data, dice, 2000)], ids=["bytes", "text"]
)
def test_bytes_are_a_function_of_the_seed(mutate) -> None:
    data = b"one two\tthree four\n" * 7
    once, repeated = ([mutate(data, random.Random(seed)) for seed in range(50)] for _ in range(2))
    assert once == repeated
    # a bit that is flipped, a slice that is cut: hardly ever the same bytes
    assert sum(spoilt != data for spoilt, _ in once) > 40


def test_a_json_mutation_names_the_key_of_what_it_changes() -> None:
    for seed in range(200):
        text, done, keys = mutate_json(json.dumps(DOCUMENT), random.Random(seed))
        assert keys[0] in done
        try:
            spoilt = json.loads(text)
        except (ValueError, RecursionError):
            continue  # digits without end, brackets without end
        assert spoilt != DOCUMENT or "= " in done


def test_a_file_is_spoilt_in_place_and_named(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for seed in range(20):
        file.write_text(json.dumps(DOCUMENT))
        mutation = mutate_file(file, random.Random(seed))
        assert mutation.culprits[0] == "config.json"
        assert mutation.text.startswith("config.json: ")


def test_what_stands_in_a_files_place_leaves_what_a_link_leads_to(tmp_path: Path) -> None:
    canary, run = tmp_path / "canary", tmp_path / "case" / "run"
    (canary / "photos").mkdir(parents=True)
    (canary / "notes.txt").write_text("untouched")
    run.mkdir(parents=True)
    kinds = set()
    for seed in range(100):
        mutation = replace_file(run / "log.jsonl", canary, random.Random(seed))
        kinds.add(mutation.text)
        if mutation.text.endswith("a link to a file elsewhere"):
            assert (run / "log.jsonl").resolve() == (canary / "notes.txt").resolve()
    assert len(kinds) == 9
    assert (canary / "notes.txt").read_text() == "untouched"

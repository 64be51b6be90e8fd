from pathlib import Path

from attent.models.settings import EncoderSettings
from attent.runs.config import RunConfig
from attent.runs.folder import tokenizer_file
from attent.tasks.task import Vocabularies
from attent.text.tokenizer import CharTokenizer


def test_what_was_learnt_is_what_a_run_folder_holds(tmp_path: Path) -> None:
    config = RunConfig(
        task="classify", tokenizers={"text": "char"}, sizes=(7, 2), files=("labels.json",), model=EncoderSettings()
    )
    CharTokenizer("abc").save(tmp_path / tokenizer_file("text"))
    (tmp_path / "labels.json").write_text("[]", encoding="utf-8")
    read = Vocabularies.read(tmp_path, config)
    assert (read.kinds, read.files, read.sizes, read.longest) == ({"text": "char"}, {"labels.json": "[]"}, (7, 2), None)
    assert [tokenizer.encode("abc") for tokenizer in read.tokenizers] == [[4, 5, 6]]

from attent.data.tokenizer import CharTokenizer
from attent.models.settings import EncoderSettings
from attent.runs.config import RunConfig
from attent.tasks.task import Vocabularies


def test_what_was_learnt_is_what_a_run_folder_holds() -> None:
    config = RunConfig(task="classify", tokenizers={"text": "char"}, sizes=(7, 2), files=("labels.json",), model=EncoderSettings())
    tokenizer = CharTokenizer("abc")
    learnt = Vocabularies.of(config, (tokenizer,), {"labels.json": "[]"})
    assert learnt == Vocabularies({"text": "char"}, (tokenizer,), {"labels.json": "[]"}, (7, 2))

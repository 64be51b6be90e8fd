from __future__ import annotations

from pathlib import Path

from attent.documents.chunks import FileTranslator, MarkupTranslator
from attent.tasks.translation.translator import load

RUN = Path(__file__).parent.parent / "frozen" / "runs" / "pairs"


def test_refused_sentences_are_reported_with_their_lines(tmp_path: Path) -> None:
    translator, said = load(RUN), list[str]()
    lines = MarkupTranslator(translator, translator.search, said.append, "html", each_line=True)
    assert lines.is_empty
    output, is_complete = lines.translate([(4, "<b>the dog</b>"), (5, "")])
    assert not lines.is_empty and is_complete and not said
    assert output[0].startswith("<b>") and output[1] == ""
    file = tmp_path / "page.md"
    file.write_text("# the dog\n", encoding="utf-8")
    document = FileTranslator(translator, translator.search, said.append, str(file), ".md")
    assert not document.is_empty and len(document.digest) == 64
    (content,), is_complete = document.translate([(0, document.digest)])
    assert content.startswith(b"# ") and is_complete
    translator.input_check = lambda text: "no cats"
    assert lines.translate([(6, "<i>a cat</i>")]) == (["<i>a cat</i>"], False)
    assert said == ["line 7: 'a cat': no cats"]

"""attent answer: answer a question about a passage."""

import json
from typing import Annotated

import typer

from attent.cli.options import JsonLines, RunFolder, TypedLoading
from attent.cli.output import one_line, say, write
from attent.text.sources import check_utf8, decode_whole, open_source


def answer(
    run: RunFolder,
    loading: TypedLoading,
    passage: Annotated[str, typer.Argument(metavar="PASSAGE|FILE|-", help="A passage, a file with one, or -.")],
    question: Annotated[str, typer.Argument(help="A question about the passage.")],
    as_json: JsonLines = False,
) -> None:
    """Answer a question with a part of a passage.

    Prints the answer, a tab and its probability; with --json also its characters in the passage. PASSAGE is a text
    unless a file has this name. Words that the run does not know are named on standard error.
    """
    check_utf8(question, "the question")
    from attent.tasks.question_answering.question_answerer import load, words_of
    from attent.text.tokenizer import unknown_pieces

    answerer = loading.tool(run, load)
    with open_source(passage) as stream:
        text = next(decode_whole(stream, passage))
    result = answerer.answer(text, question)
    if pieces := unknown_pieces(" ".join(words_of(f"{question} {text}")), answerer.tokenizer):
        say(f"unknown to this run: {', '.join(map(repr, map(str.strip, pieces)))}")
    values = {"text": result.text, **result.span._asdict(), "probability": result.probability}
    write(json.dumps(values, ensure_ascii=False) if as_json else f"{one_line(result.text)}\t{result.probability:.4f}")

from attent.text.report import VectorsReport
from attent.text.word_vectors.reading import NOT_UTF8, REPEATED


def test_a_report_counts_and_numbers_what_its_file_has() -> None:
    report = VectorsReport(
        "a.bin", lines=1234, unit="word", words=7, width=3, skipped=5, remarks=["the first line lies"]
    )
    for index in (3, 5, 8, 13):
        report.drop(REPEATED, index)
    report.note(NOT_UTF8, 2)
    assert report.summary() == [
        "a.bin: 1,234 words read, 7 vectors of 3 numbers kept, 5 not wanted",
        "  the first line lies",
        "  4 dropped: a word that came before (words 3, 5, 8, …)",
        "  1 kept: word that is not UTF-8, its bytes replaced by � (word 2)",
    ]


def test_the_former_name_of_a_summary_is_accepted() -> None:
    report = VectorsReport("x", lines=3, words=2, width=5)
    assert report.summary() == ["x: 3 lines read, 2 vectors of 5 numbers kept"]

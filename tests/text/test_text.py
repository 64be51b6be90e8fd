from attent.text.text import Gold, add_tag


def test_a_tag_stands_before_the_text() -> None:
    assert add_tag("fr", "mardi 3 mars 2026") == "fr | mardi 3 mars 2026"


def test_sure_links_are_possible_too() -> None:
    gold = Gold.of([(0, 0), (2, 1)], [(1, 1)])
    assert gold.sure == {(0, 0), (2, 1)}
    assert gold.possible == {(0, 0), (2, 1), (1, 1)}
    assert Gold.of([]) == Gold(frozenset(), frozenset())

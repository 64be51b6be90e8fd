from attent.data.gold import Gold


def test_sure_links_are_possible_too() -> None:
    gold = Gold.of([(0, 0), (2, 1)], [(1, 1)])
    assert gold.sure == {(0, 0), (2, 1)}
    assert gold.possible == {(0, 0), (2, 1), (1, 1)}
    assert Gold.of([]) == Gold(frozenset(), frozenset())

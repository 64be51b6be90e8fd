import threading
import time

import pytest
import torch

from attent.tasks.translation.translator import parallel_map


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_answers_come_in_the_order_of_the_parts_from_threads_of_one_each() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def work(number: int) -> tuple[int, int, str]:
        if number < 2:
            # neither goes on alone
            meeting.wait()
            time.sleep(0.02 * (1 - number))
        return number, torch.get_num_threads(), threading.current_thread().name

    result = list(parallel_map(work, range(5)))
    assert [number for number, _, _ in result] == list(range(5))
    assert {threads for _, threads, _ in result} == {1}
    assert result[0][2] != result[1][2]
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2]


def test_one_part_keeps_all_threads_and_stays_where_it_is() -> None:
    actual = list(parallel_map(lambda _: (torch.get_num_threads(), threading.current_thread()), [0]))
    assert actual == [(2, threading.current_thread())]


def test_what_goes_wrong_is_told_and_threads_are_given_back() -> None:
    def work(number: int) -> int:
        if number == 1:
            raise KeyError(number)
        return number

    with pytest.raises(KeyError):
        list(parallel_map(work, range(4)))
    assert torch.get_num_threads() == 2

"""When a load process was kept from looking at its sockets."""

from itertools import pairwise

from tasks.load.capture.sight import Sight

MS = 1_000_000
TICK = 500 * MS


def seen(sight: Sight) -> list[tuple[int, int]]:
    return list(zip(sight.blinks[::2], sight.blinks[1::2], strict=True))


def test_a_quarter_of_the_gap_may_go_by_between_two_looks():
    sight = Sight()
    sight.learn(in_flight=16, reads=400, within=TICK)
    assert sight.longest == 5 * MS
    sight.learn(in_flight=16, reads=8, within=TICK)  # most of them wait for a first chunk
    assert sight.longest == 5 * MS
    sight.learn(in_flight=16, reads=800, within=TICK)
    assert sight.longest == 2.5 * MS


def test_streams_that_have_just_ended_make_no_gap_short():
    sight = Sight()
    sight.learn(in_flight=1000, reads=25_000, within=TICK)
    sight.learn(in_flight=1, reads=25_000, within=TICK)
    assert sight.longest == 5 * MS
    sight.learn(in_flight=1, reads=0, within=TICK)
    assert sight.longest == 5 * MS


def test_it_looks_no_oftener_than_the_machine_can():
    sight = Sight()
    sight.learn(in_flight=1, reads=5000, within=TICK)
    assert sight.longest == MS / 2


def test_of_very_many_blinks_the_long_ones_are_kept_each_for_itself():
    sight = Sight()
    for number in range(20_000):
        length = (90 if number % 100 == 7 else 11) * MS
        if length > sight.longest:
            sight.blink(number * 100 * MS, number * 100 * MS + length)
    assert sum(until - since == 90 * MS for since, until in seen(sight)) == 200
    assert len(seen(sight)) <= 4000
    assert all(first[1] < second[0] for first, second in pairwise(seen(sight)))

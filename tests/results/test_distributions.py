"""How latencies are spread, against requests laid out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.measurement import RequestOutcome, RequestRecord
from tasks.results.cells import Cell
from tasks.results.distributions import distributions, shares
from tasks.results.saving import save_levels
from tests.results.factory import level, record

HERE = Cell("chat", "c64")
MS = 1_000_000


def request(ttft_ms: int, *gaps_ms: int, tokens: tuple[int, ...] = ()) -> RequestRecord:
    """A request whose chunks come `gaps_ms` apart, each with a token unless `tokens` says else."""
    made = record(1)
    at = [made.intended_ns + ttft_ms * MS]
    for gap in gaps_ms:
        at.append(at[-1] + gap * MS)
    brought = tokens or (1,) * len(at)
    totals = tuple(sum(brought[: n + 1]) for n in range(len(at)))
    return replace(
        made, arrival_ns=tuple(at), first_text_ns=at[0], cumulative_tokens=totals, end_ns=at[-1]
    )


def spread(tmp_path: Path, *records: RequestRecord, cell: Cell = HERE):
    path = tmp_path / "requests.parquet"
    save_levels(path, [level(100.0, records=records)])
    return {one.latency: one for one in distributions(path, cell)}


def test_shares_come_closer_towards_the_slowest():
    assert list(shares(0)) == list(shares(1)) == [0]
    found = list(shares(100))
    assert len(found) == 41
    assert (found[0], found[20], found[40]) == (0, pytest.approx(0.9), pytest.approx(0.99))
    assert max(shares(1000)) == pytest.approx(0.999)


def test_the_first_token_counts_from_the_intended_send(tmp_path: Path):
    found = spread(tmp_path, request(100, 5), request(300, 5), request(200, 5))["ttft"]
    assert found.count == 3
    assert found.points[0] == (0, 100)
    # the last share that three values tell is 1 - 1/10^0.5 or more: between the 2nd and the 3rd
    assert 200 < found.points[-1][1] < 300


def test_a_gap_is_shared_by_the_tokens_that_it_brought(tmp_path: Path):
    found = spread(tmp_path, request(100, 8, 12, tokens=(1, 1, 3)))["itl"]
    # 8 ms for one token, 12 ms for three: 4, 4, 4, 8
    assert found.count == 4
    assert found.points[0] == (0, 4)
    assert 4 < found.points[-1][1] < 8


def test_a_chunk_without_a_token_has_no_gap(tmp_path: Path):
    assert spread(tmp_path, request(100, 8, 12, tokens=(1, 0, 1)))["itl"].count == 1


def test_only_what_was_measured_and_finished_counts(tmp_path: Path):
    good = request(100, 5)
    warm = replace(good, warmup=True)
    cut = replace(good, outcome=RequestOutcome.CUT)
    silent = replace(good, first_text_ns=None, arrival_ns=(), cumulative_tokens=())
    found = spread(tmp_path, good, warm, cut, silent)
    assert {name: one.count for name, one in found.items()} == {"ttft": 1, "itl": 1}


def test_another_cell_or_no_file_has_none(tmp_path: Path):
    assert spread(tmp_path, request(100, 5), cell=Cell("chat", "c1")) == {}
    assert distributions(tmp_path / "nothing.parquet", HERE) == ()


def test_a_damaged_file_has_none(tmp_path: Path):
    path = tmp_path / "requests.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    assert distributions(path, HERE) == ()

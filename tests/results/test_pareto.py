"""The front, against points placed by hand, and what counts as a point at all."""

from dataclasses import replace

import polars as pl
import pytest

from tasks.domain.configuration import TrialVerdict
from tasks.domain.measurement import SearchRole, Validity
from tasks.domain.sglang import gpus_of
from tasks.results.pareto import GPU, USER, points, with_front
from tests.results import factory
from tests.results.factory import level, measured, trial


def front(*placed: tuple[str, float, float], workload: str = "chat") -> list[str]:
    frame = pl.DataFrame(
        [(name, workload, name, x, y) for name, x, y in placed],
        schema=["trial_id", "workload", "level", USER, GPU],
        orient="row",
    )
    return with_front(frame).filter("on_front")["trial_id"].to_list()


def test_what_is_beaten_in_both_is_not_on_the_front():
    assert front(("slow", 1.0, 1.0), ("both", 2.0, 2.0)) == ["both"]


def test_less_of_one_for_more_of_the_other_is_on_the_front():
    placed = [("wide", 1.0, 9.0), ("middle", 5.0, 5.0), ("quick", 9.0, 1.0)]
    assert front(*placed) == ["wide", "middle", "quick"]
    assert front(*placed, ("inside", 4.0, 4.0), ("beside", 5.0, 4.9)) == ["wide", "middle", "quick"]


def test_equal_in_one_the_other_decides():
    assert front(("less", 5.0, 1.0), ("more", 5.0, 2.0)) == ["more"]
    assert front(("less", 1.0, 5.0), ("more", 2.0, 5.0)) == ["more"]


def test_points_that_are_equal_in_both_share_the_front():
    assert front(("a", 2.0, 2.0), ("b", 2.0, 2.0), ("c", 1.0, 2.0)) == ["a", "b"]


def test_a_single_point_is_the_front_and_none_has_none():
    assert front(("alone", 0.5, 0.5)) == ["alone"]
    empty = points(factory.sweep(), ())
    assert with_front(empty).to_dicts() == []
    assert "on_front" in with_front(empty).columns


def test_each_workload_has_a_front_of_its_own():
    frame = pl.DataFrame(
        {
            "trial_id": ["a", "b"],
            "workload": ["chat", "code"],
            "level": ["c1", "c1"],
            USER: [1.0, 9.0],
            GPU: [1.0, 9.0],
        }
    )
    assert with_front(frame)["on_front"].to_list() == [True, True]


def tried(throughput: float, concurrency: int = 64, **changes: object):
    metrics = {"median_tpot_ms": 20.0, **changes}
    return level(throughput, concurrency=concurrency, **metrics)  # type: ignore[arg-type]


def test_a_point_is_speed_for_each_user_and_throughput_of_each_gpu():
    runs = (tried(1600.0), replace(tried(1680.0, median_tpot_ms=30.0), repeat=2))
    (row,) = points(factory.sweep(constraints=[]), [measured(trial(), 1, levels=runs)]).to_dicts()
    assert (row["workload"], row["level"]) == ("chat", "c64")
    assert row[USER] == pytest.approx(1000 / 25)
    assert row[GPU] == pytest.approx(1640 / 8)


def levels_of(*trials) -> list[str]:
    asked = factory.sweep(constraints=[{"metric": "p99_ttft_ms", "max": 2000}])
    return points(asked, trials)["level"].to_list()


def test_only_what_may_be_chosen_is_a_point():
    fine = measured(trial(), 1, levels=(tried(100.0), tried(9.0, 1)))
    assert levels_of(fine) == ["c64", "c1"]
    for verdict in set(TrialVerdict) - {TrialVerdict.MEASURED}:
        assert levels_of(replace(fine, verdict=verdict)) == []


def test_a_level_that_breaks_a_constraint_is_no_point_and_the_others_are():
    late = measured(trial(), 1, levels=(tried(100.0, p99_ttft_ms=2001.0), tried(9.0, 1)))
    assert levels_of(late) == ["c1"]
    unknown = tried(100.0)
    metrics = {name: value for name, value in unknown.metrics.items() if name != "p99_ttft_ms"}
    assert levels_of(measured(trial(), 1, levels=(replace(unknown, metrics=metrics),))) == []


def test_of_a_search_the_steps_that_kept_the_slo_are_points():
    asked = factory.sweep(
        constraints=[],
        workloads=[
            {
                "name": "chat",
                "requests": 320,
                "largest": {"of": "concurrency", "low": 1, "high": 64, "attainment": 0.9},
                "slo": {"ttft_ms": 500},
            }
        ],
        objective={"metric": "largest_concurrency"},
    )
    steps = [
        replace(tried(9.0 * n, n, slo_attainment=share), search=SearchRole.STEP)
        for n, share in ((1, 1.0), (16, 0.9), (64, 0.89))
    ]
    found = replace(steps[1], search=SearchRole.FOUND)
    unknown = replace(tried(9.0, 2), search=SearchRole.STEP)
    result = measured(trial(), 1, levels=(*steps, found, unknown))
    assert points(asked, [result])["level"].to_list() == ["c1", "c16"]


@pytest.mark.parametrize(
    ("constraint", "kept"),
    [
        ({"concurrency": 1}, ["c64"]),
        ({"concurrency": 64}, ["c1"]),
        ({"workload": "chat"}, []),
        ({}, []),
    ],
)
def test_a_constraint_holds_where_it_says(constraint: dict[str, object], kept: list[str]):
    asked = factory.sweep(constraints=[{"metric": "p99_ttft_ms", "max": 1, **constraint}])
    fine = measured(trial(), 1, levels=(tried(100.0), tried(9.0, 1)))
    assert points(asked, [fine])["level"].to_list() == kept


def test_runs_that_are_invalid_and_levels_without_a_speed_are_no_points():
    bad = tried(100.0, validity=Validity.INVALID)
    assert levels_of(measured(trial(), 1, levels=(bad,))) == []
    silent = tried(100.0, median_tpot_ms=0.0)
    assert levels_of(measured(trial(), 1, levels=(silent, level(9.0, concurrency=1)))) == []


@pytest.mark.parametrize(
    ("args", "gpus"),
    [
        ({}, 1),
        ({"tp": 8}, 8),
        ({"tp_size": 4, "pp": 2}, 8),
        ({"tensor_parallel_size": 2, "data_parallel_size": 4}, 8),
        ({"tp": 8, "dp": 8, "enable_dp_attention": True}, 8),
        ({"tp": 8, "dp": 2, "enable_dp_attention": False}, 16),
        ({"tp": "4"}, 4),
    ],
)
def test_the_gpus_of_a_server_are_its_ranks(args: dict[str, object], gpus: int):
    assert gpus_of(args) == gpus

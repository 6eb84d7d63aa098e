"""Numbers and names read the same wherever they are shown."""

import pytest

from tasks.domain.diagnosis import Remedy
from tasks.results.statistics import Estimate, Interval, Ratio
from tasks.results.wording import (
    estimate_text,
    gain_text,
    interval_text,
    metric_title,
    number,
    remedy_text,
    value_text,
    varying_axes,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (131_000.0, "131,000"),
        (1308.4, "1,308"),
        (308.24, "308.2"),
        (92.6, "92.60"),
        (0.04576, "0.0458"),
        (0.0, "0.00"),
        (-12.5, "-12.50"),
    ],
)
def test_numbers_have_about_four_digits(value: float, text: str):
    assert number(value) == text


def test_an_interval_is_written_to_the_digit_of_its_mean():
    assert estimate_text(None) == "–"
    assert estimate_text(Estimate(1308, 1)) == "1,308"
    assert estimate_text(Estimate(1308, 2, Interval(1269.9, 1346.1))) == "1,308 ± 38"
    assert estimate_text(Estimate(0.5, 2, Interval(0.25, 0.75))) == "0.5 ± 0.25"


def test_ratios_are_percentages():
    assert gain_text(None) == "–"
    assert gain_text(Ratio(1.09, 1, 1)) == "+9.0 %"
    assert interval_text(Ratio(1.09, 1, 1)) == ""
    assert interval_text(Ratio(0.9, 2, 2, Interval(0.88, 1.02))) == "−12.0 … +2.0 %"


@pytest.mark.parametrize(
    ("metric", "title"),
    [
        ("output_throughput", "output tok/s"),
        ("p99_ttft_ms", "p99 TTFT ms"),
        ("mean_e2e_latency_ms", "mean E2E ms"),
        ("max_concurrent_requests", "max concurrent requests"),
        ("p99_icl_ms", "p99 icl ms"),
    ],
)
def test_metrics_have_brief_titles(metric: str, title: str):
    assert metric_title(metric) == title


def test_a_remedy_says_what_it_sets():
    assert remedy_text(Remedy("waits", wait_s=3)) == "waits"
    remedy = Remedy(
        "many",
        env={"A": "1"},
        args={"disable_x": True, "fast": False, "n": 4},
        scale_args={"mem_fraction_static": 0.9},
        rename_args={"cuda_graph_max_bs": "cuda_graph_max_bs_decode"},
    )
    assert remedy_text(remedy) == (
        "A=1 --disable-x without --fast --n 4 --mem-fraction-static × 0.9 "
        "--cuda-graph-max-bs-decode for --cuda-graph-max-bs"
    )


def test_only_axes_that_vary_are_shown():
    assert varying_axes([{"a": 1, "b": 1}, {"a": 1, "b": True}]) == ("b",)
    assert varying_axes([]) == ()


def test_flags_are_on_or_off():
    assert [value_text(value) for value in (True, False, 0, None)] == ["on", "off", "0", "None"]

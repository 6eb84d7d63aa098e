"""The page for people: complete, self-contained, safe, and the same facts as the terminal."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tasks.domain.configuration import TrialResult, TrialVerdict
from tasks.domain.measurement import SearchRole
from tasks.results.comparison import compare_with_baseline
from tasks.results.folders import SweepFolder
from tasks.results.frames import save_requests
from tasks.results.page import latency_spread, page_html, write_page
from tasks.results.plots.trials import plots
from tasks.results.records import StoredSweep, SweepRecord, SweepState
from tasks.results.terminal import print_comparison, print_report
from tasks.results.view import failure_groups, view
from tests.results import factory
from tests.results.factory import NIGHT, attempt, measured, night, trial


def stored(*trials: TrialResult, **changes: object) -> StoredSweep:
    record = SweepRecord(
        "20261130T020000Z-kimi-k2.5-nightly-ab12",
        factory.sweep(),
        SweepState.COMPLETED_WITH_FAILURES,
        NIGHT,
        NIGHT + 7300,
        NIGHT + 7300,
        versions={"sglang-sweep": "0.1.0", "python": "3.11.7"},
        stacks=(factory.stack_report(),),
    )
    return StoredSweep(replace(record, **changes), trials)  # type: ignore[arg-type]


def html_of(asked: StoredSweep) -> str:
    return page_html(view(asked))


class Outline(HTMLParser):
    """Collects what a browser would fetch, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.headings: list[str] = []
        self.figures: list[str | None] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.fetched += [
            value
            for key, value in attrs
            if key in ("src", "href", "srcset") and value and not value.startswith("#")
        ]
        if tag == "figure":
            self.figures.append(named.get("aria-label"))
        if tag in ("h1", "h2", "h3"):
            self.headings.append(tag)
        if tag not in ("meta", "wbr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.text))


def terminal(show: Callable[[Console], None], width: int = 100) -> str:
    buffer = StringIO()
    show(Console(file=buffer, width=width))
    return buffer.getvalue()


def test_the_page_has_the_decision_first_and_fetches_nothing():
    html = html_of(stored(*night()))
    outline = Outline(html)
    assert outline.open == []
    assert outline.fetched == []
    assert not re.search(r"url\(|@import", html)
    assert outline.headings[:2] == ["h1", "h2"]
    words = outline.words.partition("Provenance")[2]
    assert words.index("Decision") < words.index("+9.0 %") < words.index("Trials")
    assert "95 % interval +6.9 … +11.2 %" in words
    assert "--cuda-graph-max-bs 128 --host 127.0.0.1 --port 30000" in words


def test_the_page_tells_each_failure_with_cause_evidence_cure_and_command():
    words = Outline(html_of(stored(*night()))).words
    assert "cudnn-conv3d-check cured: launch 2 served" in words
    assert "SGLang refuses torch 2.9.1 with a cuDNN below 9.15." in words
    assert "118RuntimeError: PyTorch 2.9.1" in words
    assert "Cure: SGLANG_DISABLE_CUDNN_CHECK=1" in words
    assert "pruned: this configuration cannot run here" in words
    assert "--speculative" not in words.split("oom-graph-capture")[2].split("Not launched")[0]
    assert "not launched: cuda_graph_max_bs=256" in words


def test_the_page_tells_where_the_numbers_come_from():
    words = Outline(html_of(stored(*night()))).words
    for fact in (
        "20261130T020000Z-kimi-k2.5-nightly-ab12",
        "2026-11-30 02:00 UTC to 2026-11-30 04:01 UTC",
        "8 × NVIDIA RTX PRO 6000 Blackwell Server Edition, driver 580.95.05",
        factory.FINGERPRINT,
        "torch 2.9.1+cu130",
        "sglang-sweep 0.1.0, python 3.11.7",
        "p99 TTFT ms at most 2,000 at chat/c64",
        "1,024 in, 512 out",
    ):
        assert fact in words


def test_every_figure_is_described():
    figures = Outline(html_of(stored(*night()))).figures
    assert len(figures) == 6
    assert all(figures)
    assert (
        "output tok/s at chat/c64, a row for each of 3 trials: best 1,308, baseline 1,200."
        in figures
    )
    assert figures[0] == (
        "What each axis does to output tok/s, all else equal: the strongest is "
        "cuda_graph_max_bs 64 → 128, +9.0 %."
    )


def test_the_plots_follow_the_page_colours():
    svg = "".join(plot.svg for plot in plots(view(stored(*night()))))
    assert "var(--best)" in svg
    assert not re.search(r"#0[1-6]0[1-6]0[1-6]", svg)


def test_what_a_server_or_a_person_wrote_is_text_and_nothing_more():
    evil = "</td></svg><script>alert(1)</script>\"'&"
    wanted = trial(**{"args.x": evil})
    other = trial(baseline=True, **{"args.x": "b"})
    failed = attempt(wanted, 1, ready_s=None, diagnosis=replace(factory.cudnn_failure(), mode=evil))
    bad = measured(wanted, 10.0, 11.0, attempts=(failed, attempt(wanted, 2)), reason=evil)
    html = html_of(stored(bad, measured(other, 9.0, 9.5), reason=evil))
    assert "<script>alert" not in html
    assert Outline(html).open == []


@pytest.mark.parametrize("state", list(SweepState))
def test_a_sweep_without_trials_has_a_page_in_every_state(state: SweepState):
    outline = Outline(html_of(stored(state=state, ended_at=None, stacks=())))
    assert "no configuration to deploy" in outline.words
    assert "No trial was stored." in outline.words
    assert outline.figures == []


def test_a_sweep_in_which_nothing_was_measured_has_a_page():
    words = Outline(html_of(stored(*night()[3:]))).words
    assert "None of the 3 trials is measured, correct and within the constraints" in words


def test_single_runs_open_loop_and_other_shapes():
    content = factory.sweep().model_dump()
    rate = {"name": "chat", "request_rate": [0.5, 4.0]}
    asked = factory.sweep(
        **{**content, "workloads": [rate], "constraints": [], "objective": {"workload": "chat"}}
    )
    runs = tuple(
        replace(factory.level(100 * r), concurrency=None, request_rate=r) for r in (0.5, 4.0)
    )
    base = measured(trial(baseline=True), 1, levels=runs)
    words = Outline(html_of(stored(base, sweep=asked))).words
    assert "nothing that was measured beats it" in words
    assert "Output throughput over request rate, chat" in words


def searched(wanted, rate: float) -> TrialResult:
    """What a search leaves that found a rate, or nothing at a rate of 0."""
    runs = [
        replace(
            factory.level(100 * at, slo_attainment=1.0 if at <= rate else 0.4),
            concurrency=None,
            request_rate=at,
            search=SearchRole.STEP,
        )
        for at in (1.0, 16.0, 4.0, rate)
        if at
    ]
    metrics = {**runs[-1].metrics, "largest_request_rate": rate}
    found = replace(runs[-1], search=SearchRole.FOUND, metrics=metrics)
    return measured(wanted, 1, levels=(*runs, found) if rate else tuple(runs))


def test_the_largest_rate_within_the_slo_decides_and_is_drawn():
    asked = factory.sweep(
        workloads=[{"name": "chat", "largest": {"low": 1, "high": 16}, "slo": {"ttft_ms": 500}}],
        objective={"metric": "largest_request_rate"},
        constraints=[],
    )
    base, better, worse = (trial(baseline=n == 64, cuda_graph_max_bs=n) for n in (64, 128, 256))
    trials = searched(base, 4.0), searched(better, 8.0), searched(worse, 0.0)
    words = Outline(html_of(stored(*trials, sweep=asked))).words
    assert "+100.0 % requests/s within the SLO over the baseline" in words
    assert "8.00 requests/s within the SLO at chat/slo" in words
    assert "it doesn't keep the SLO of chat even at 1" in words
    assert "the most from 1 to 16 at which 99 % keep TTFT 500 ms: requests a second" in words
    assert "Share of requests within the SLO over request rate, chat" in words


def test_the_latencies_of_a_search_are_those_of_the_step_that_it_found(tmp_path: Path):
    asked = factory.sweep(
        workloads=[{"name": "chat", "largest": {"low": 1, "high": 16}, "slo": {"ttft_ms": 500}}],
        objective={"metric": "largest_request_rate"},
        constraints=[],
    )
    base = searched(trial(baseline=True), 8.0)
    records = {8.0: (factory.record(1), factory.record(2)), 16.0: (factory.record(1),)}
    levels = tuple(
        replace(each, records=records.get(each.request_rate or 0, ()))
        if each.search is SearchRole.STEP
        else each
        for each in base.levels
    )
    folder = SweepFolder(tmp_path, "night")
    save_requests(folder, replace(base, levels=levels))
    (itl,) = latency_spread(view(stored(base, sweep=asked)), folder)["best"]
    assert (itl.latency, itl.count) == ("itl", 2 * 3)


def test_single_runs_say_that_there_is_no_interval():
    base, better, *_ = night()
    one = measured(better.trial, 1300, attempts=better.attempts[:1])
    reference = measured(base.trial, 1200, attempts=base.attempts[1:2])
    words = Outline(html_of(stored(one, reference))).words
    assert "one run on a side: no interval, repeat to be sure" in words
    assert "inconclusive" in words


def test_an_altered_best_is_marked_in_both_reports():
    base, better, *_ = night()
    altered = replace(better, remedies=(factory.LESS_MEMORY,))
    page = view(stored(base, altered))
    assert "altered by --mem-fraction-static 0.8" in terminal(lambda c: print_report(c, page))
    words = Outline(html_of(page.stored)).words
    assert "altered by --mem-fraction-static 0.8: it isn't the configuration" in words


def test_the_terminal_fits_100_columns_but_for_the_line_to_paste():
    page = view(stored(*night()))
    said = terminal(lambda console: print_report(console, page, Path("/store/report.html")))
    wide = [line for line in said.splitlines() if len(line) > 100]
    assert len(wide) == 1
    assert wide[0].startswith("NCCL_PROTO=LL")
    assert "1 ×" in said
    assert "report   /store/report.html" in said


def test_the_terminal_says_when_nothing_is_feasible():
    said = terminal(lambda console: print_report(console, view(stored(*night()[3:]))))
    assert "no configuration is measured, correct and feasible" in said


def test_many_axes_become_one_column():
    axes = {f"args.flag_{n}": n for n in range(8)}
    trials = [measured(trial(**{**axes, "args.flag_0": n, **axes}), 10.0 + n) for n in range(2)]
    trials[1] = replace(trials[1], trial=trial(**{name: n + 1 for name, n in axes.items()}))
    said = terminal(lambda console: print_report(console, view(stored(*trials))))
    assert max(map(len, said.splitlines()[3:8])) <= 100


def test_a_comparison_fits_100_columns():
    found = compare_with_baseline(stored(*night()))
    said = terminal(lambda console: print_comparison(console, found))
    assert max(map(len, said.splitlines())) <= 100
    assert "faster" in said
    assert "inconclusive: the runs differ too much" in said


def test_launches_that_failed_alike_are_told_once():
    base = night()[0]
    others = [replace(base, trial=trial(cuda_graph_max_bs=n)) for n in (8, 16, 32)]
    page = view(stored(base, *others))
    (group,) = failure_groups(page.failures)
    assert (group.launches, group.cured, len(group.trials)) == (4, 4, 4)
    assert group.outcome == "cured: 4 of 4 launches"
    assert "4 ×" in terminal(lambda console: print_report(console, page))


def test_remedies_that_all_share_are_told_once():
    base = night()[0]
    page = view(stored(base, replace(base, trial=trial(cuda_graph_max_bs=8))))
    assert page.shared_remedies == "SGLANG_DISABLE_CUDNN_CHECK=1"
    assert [row.note for row in page.rows] == ["", ""]


def test_pending_trials_are_shown_but_not_called_pruned():
    waiting = TrialResult(trial(cuda_graph_max_bs=8), TrialVerdict.PENDING)
    page = view(stored(waiting, state=SweepState.RUNNING, ended_at=None))
    assert page.unlaunched == {}
    assert page.counts == "1 pending"
    assert page.lasted == ""


def test_a_large_sweep_stays_quick_and_small(tmp_path: Path):
    trials = [measured(trial(cuda_graph_max_bs=n), 1000.0 + n, 1001.0 + n) for n in range(1, 201)]
    folder = SweepFolder(tmp_path, "night")
    start = time.process_time()
    write_page(view(stored(*trials)), folder)
    assert time.process_time() - start < 10, "seconds of CPU, however busy the machine"
    assert folder.report.stat().st_size < 5_000_000

"""The report as a browser shows it: complete, without a fault, light, dark, narrow and on paper."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.domain.configuration import Spell, TrialResult
from tasks.domain.measurement import LevelResult
from tasks.results.folders import SweepFolder
from tasks.results.page import write_page
from tasks.results.records import SweepState
from tasks.results.regression import standing
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep, load_sweep, record_stack, set_state
from tasks.results.view import view
from tests.results import factory
from tests.results.browser import PROGRAM, Browser
from tests.results.factory import NIGHT, night, record

pytestmark = [
    pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="needs chromium"),
    pytest.mark.timeout(120),
]

DAY_S = 86_400.0


def kept(store: Path, at: float) -> SweepFolder:
    """A night in the store: with requests, speeds, energy, and what its time went on."""
    folder = create_sweep(store, factory.sweep(), now=at)
    record_stack(folder, factory.stack_report(), now=at)
    for result in night():
        save_trial(folder, told(result, at))
    set_state(folder, SweepState.COMPLETED_WITH_FAILURES, now=at + 7300)
    return folder


def told(result: TrialResult, at: float) -> TrialResult:
    levels = tuple(fuller(level) for level in result.levels)
    attempts = tuple(
        replace(each, spells=(Spell("weights", at + 900 * each.number, 300.0),))
        for each in result.attempts
    )
    return replace(result, levels=levels, attempts=attempts)


def fuller(level: LevelResult) -> LevelResult:
    metrics = {**level.metrics, "median_tpot_ms": level.metrics["median_itl_ms"]}
    metrics |= {"gpu_energy_j": 5e5, "output_tokens_per_joule": 0.4}
    records = (record(number, chunks=20) for number in range(30))
    texted = tuple(replace(each, first_text_ns=each.arrival_ns[0]) for each in records)
    return replace(level, metrics=metrics, records=texted)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    store = tmp_path_factory.mktemp("store")
    nights = [kept(store, NIGHT - day * DAY_S) for day in (1, 0)]
    folder = nights[-1]
    page = view(load_sweep(store, folder.sweep_id))
    write_page(page, folder, standing(store, folder.sweep_id, page.stored.sweep))
    opened = Browser(tmp_path_factory.mktemp("profile"))
    opened.open(folder.report)
    yield opened
    opened.close()


def test_every_section_and_plot_is_there(browser: Browser):
    headings = browser.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert headings == [
        "Decision",
        "Best against baseline, level by level",
        "What is to be had at once",
        "What each axis does",
        "Latencies",
        "Trials",
        "Failed launches",
        "Not launched",
        "Where the hours went",
        "Night after night",
        "Where these numbers come from",
        "How to read this",
    ]
    sizes = browser.run(
        "Object.fromEntries([...document.querySelectorAll('figure')].map(figure => ["
        "figure.querySelector('figcaption').textContent,"
        "figure.querySelector('svg').getBoundingClientRect().width]))"
    )
    assert list(sizes) == [
        "Throughput per GPU against speed per user, chat",
        "What each axis does to output tok/s, all else equal",
        "Time to first token at chat/c64, by percentile",
        "Gap between tokens at chat/c64, by percentile",
        "Time to first token at chat/c64",
        "Gap between tokens at chat/c64",
        "output tok/s at chat/c64",
        "Output throughput over concurrency, chat",
        "What the hours went on",
        "output tok/s at chat/c64, night after night",
    ]
    assert min(sizes.values()) > 300
    anchors = "[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))"
    assert browser.run(f"{anchors}.every(name => document.getElementById(name))")


def test_it_fetches_nothing_and_says_no_error(browser: Browser):
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert len(asked) == 1
    assert asked[0].startswith("file:")
    faults = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    assert [event for event in browser.events if event["method"] in faults] == []


def test_the_button_copies_the_command_line(browser: Browser):
    browser.ask(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    browser.ask("Emulation.setFocusEmulationEnabled", enabled=True)
    assert browser.run("document.querySelector('button').checkVisibility()")
    browser.run(
        "new Promise(done => { const button = document.querySelector('button');"
        "new MutationObserver(done).observe(button, {childList: true}); button.click() })"
    )
    assert browser.run("document.querySelector('button').textContent") == "Copied"
    copied = browser.run("navigator.clipboard.readText()")
    assert copied == browser.run("document.getElementById('best-command').textContent")
    assert "--cuda-graph-max-bs 128 --host 127.0.0.1 --port 30000" in copied


def test_dark_and_light_are_readable_text_and_plots_alike(browser: Browser):
    for scheme, page_is_light in (("light", True), ("dark", False)):
        browser.prefer(scheme)
        paper = lightness(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert (paper > 0.5) is page_is_light
        inks = browser.run(
            "[document.body, ...document.querySelectorAll('figure svg text')]"
            ".map(e => e.tagName == 'BODY' ? getComputedStyle(e).color : getComputedStyle(e).fill)"
        )
        assert len(inks) > 50
        for ink in set(inks):
            ratio = (max(paper, lightness(ink)) + 0.05) / (min(paper, lightness(ink)) + 0.05)
            assert ratio >= 4.5, f"{ink} in {scheme}: contrast {ratio:.1f}, WCAG AA asks for 4.5"
    browser.prefer("light")


def lightness(colour: str) -> float:
    """The relative luminance of `rgb(r, g, b)`, as WCAG 2.2 defines it."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_narrow_window_scrolls_in_one_direction_only(browser: Browser):
    browser.width(390)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.width(1200)


def test_it_prints(browser: Browser):
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 3 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 20

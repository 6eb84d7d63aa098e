"""What a person can read who knows nothing but Prefect's UI, in a real browser."""

from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser, browser
from tests.flows.nightly import Nightly, until

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

EVERY_KIND = """
[[fault]]
kind = "cudnn-check"

[[fault]]
kind = "oom-graph-capture"
when = {cuda_graph_max_bs = 512}

[[fault]]
kind = "silent-kill"
when = {cuda_graph_max_bs = 256}

[[fault]]
kind = "death-mid-load"
when = {cuda_graph_max_bs = 64}

[[fault]]
kind = "garbage"
when = {cuda_graph_max_bs = 32}
"""

FAILED = {
    "cudnn-conv3d-check": ("SGLANG_DISABLE_CUDNN_CHECK=1", "CuDNN Compatibility Issue"),
    "oom-cuda-graph-capture": ("0.93", "CUDA out of memory"),
    "scheduler-died-silently": ("start again", "Loading safetensors checkpoint shards"),
    "illegal-memory-access": ("once more", "illegal memory access was encountered"),
}
"""The modes, each with a word of its cure and of its evidence."""


def test_the_ui_tells_for_each_failed_launch_cause_evidence_cure_and_command(
    make_nightly, tmp_path: Path
) -> None:
    nightly: Nightly = make_nightly(EVERY_KIND)
    file = nightly.bed.sweep(
        name="story",
        axes={"cuda_graph_max_bs": [128, 512, 256, 64, 32]},
        retry={"max_attempts": 2},
    )
    assert nightly.watched(sweep=file) == 0
    run = nightly.newest("story simulated")["id"]
    ui = nightly.api.removesuffix("/api")
    with browser(tmp_path / "profile") as page:
        page.size(1400, 1600)
        page.go(f"{ui}/v2/runs/flow-run/{run}?tab=Artifacts")
        page.until("story simulated", "CompletedWithFailures", "host:simulated", "report")
        page.click("report")
        told = page.until("What failed", "best: ", "--cuda-graph-max-bs 128", "report.html")
        refused = told[told.index("What was refused") :]
        assert "cuda_graph_max_bs=32" in refused
        assert "one token in a loop" in refused
        for mode, (cure, evidence) in FAILED.items():
            story = told[told.index(mode) :]
            assert cure in story
            assert evidence in story
        until(lambda: len(page.run(_PAGES)) == len(FAILED), timeout_s=30)
        pages = page.run(_PAGES)
        shown = [_failure_page(page, url) for url in pages]
    for mode, (cure, evidence) in FAILED.items():
        [about] = [text for text in shown if f"\n{mode}\n" in text]
        assert cure in about[about.index("Cure") :]
        assert evidence in about[about.index("Evidence") :]
        assert "--cuda-graph-max-bs" in about[about.index("By hand") :]
        assert "server.log" in about[about.index("Log") :]


_LINKS = """part => [...new Set(
    [...document.querySelectorAll('a')].map(a => a.href).filter(url => url.includes(part))
)]"""

_PAGES = f"({_LINKS})('/artifacts/key/launch-failed-')"


def _failure_page(page: Browser, url: str) -> str:
    """Follow the link of a failure to its last page, as a person would."""
    page.go(url)
    page.until("Flow run: cuda_graph_max_bs")
    page.go(page.run(f"({_LINKS})('/artifacts/artifact/')")[0])
    return page.until("Evidence", "Cure", "By hand", "Whole log")

"""On CI no part may be missing: there a test that is skipped has failed."""

import os
from collections.abc import Generator

import pytest
from xdist.remote import Producer
from xdist.scheduler import Scheduling as AnyScheduling

from tests.scheduling import Scheduling

_MAY_BE_MISSING = ("python3.8",)
"""What no package of a current distribution brings."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and "TESTS_NEED_EVERY_PART" in os.environ:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        if not any(part in str(reason) for part in _MAY_BE_MISSING):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: a part is missing: {reason}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> AnyScheduling | None:
    """Say which test process takes which tests, unless the command line does."""
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None

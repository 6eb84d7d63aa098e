"""Which tests run in one process, one after the other; any other goes to whoever is free."""

from xdist.scheduler import LoadScopeScheduling

DEPLOYED = ("test_nightly.py", "test_regression_flow.py", "test_ui.py")
"""Files whose tests need deployments and automations, hence a Prefect server of their own."""

_TOGETHER = {
    **dict.fromkeys(DEPLOYED, "deployed"),
    "test_published.py": "published",
    "test_report_in_browser.py": "browser",
    "test_validate_command.py": "validate",
}
"""Files with something dear that their tests share."""


class Scheduling(LoadScopeScheduling):
    """Test by test, but for those that share something."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].rpartition("/")[2]
        return _TOGETHER.get(file, nodeid)

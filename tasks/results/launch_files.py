"""Keep what a launch left on the host: its command, environment and log."""

from tasks.results.files import write_whole
from tasks.results.folders import SweepFolder


def save_launch(
    folder: SweepFolder, trial_id: str, number: int, files: dict[str, bytes], *, node: int = 0
) -> None:
    """Write the files of one node of an attempt into the store. Raises `StoreError`."""
    for name, content in files.items():
        path = folder.node(trial_id, number, node) / name
        write_whole(path, content)
        if path.suffix == ".sh":
            path.chmod(0o755)

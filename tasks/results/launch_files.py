"""Keep what a launch left on the host: its command, environment and log."""

from tasks.results.files import write_whole
from tasks.results.folders import SweepFolder


def save_launch(folder: SweepFolder, trial_id: str, number: int, files: dict[str, bytes]) -> None:
    """Write the files of one attempt into the store. Raises `StoreError`."""
    for name, content in files.items():
        path = folder.attempt(trial_id, number) / name
        write_whole(path, content)
        if path.suffix == ".sh":
            path.chmod(0o755)

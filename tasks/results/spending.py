"""What the hours of a night went on: measuring, loading, capturing graphs, failing, waiting."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tasks.domain.configuration import Attempt, Spell, TrialResult
from tasks.domain.diagnosis import Phase
from tasks.domain.measurement import LevelResult
from tasks.results.records import StoredSweep

_LEAST_SHARE = 0.005
"""What is told in percent without decimals."""


class Spending(StrEnum):
    """What time goes on; `waiting` is all that no launch accounts for, cleaning and ending too."""

    MEASURING = "measuring"
    LOADING = "loading"
    CAPTURING = "capturing"
    FAILING = "failing"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the night: what it went on, and from when to when, UTC seconds."""

    spending: Spending
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Hours:
    """A night in stretches, and its seconds by what they went on; they add up to `total_s`.

    `gpus` are those of the hosts, which are held the whole night; 0 where nobody knows them.
    """

    stretches: tuple[Stretch, ...]
    seconds: Mapping[Spending, float]
    total_s: float
    gpus: int

    def share(self, spending: Spending) -> float:
        """Tell the share of the night that went on something."""
        return self.seconds[spending] / self.total_s if self.total_s else 0.0

    def __str__(self) -> str:
        """Tell it in a line: `GPU hours: 61 % measuring, 22 % loading`."""
        found = sorted(((self.share(kind), str(kind)) for kind in Spending), reverse=True)
        shares = (f"{100 * share:.0f} % {kind}" for share, kind in found if share >= _LEAST_SHARE)
        return f"{'GPU hours' if self.gpus else 'time'}: {', '.join(shares)}"

    def slices(self, started_at: float, count: int) -> Iterator[Mapping[Spending, float]]:
        """Cut the night into equal slices, and tell what share of each went on what."""
        width = self.total_s / count
        for number in range(count):
            start, end = started_at + number * width, started_at + (number + 1) * width
            shares = dict.fromkeys(Spending, 0.0)
            for each in self.stretches:
                within = min(end, each.ended_at) - max(start, each.started_at)
                shares[each.spending] += max(0.0, within) / width
            shares[Spending.WAITING] += max(0.0, 1 - sum(shares.values()))
            yield shares

    def gpu_hours(self, spending: Spending) -> float:
        """Tell how many hours of one GPU that was."""
        return self.gpus * self.seconds[spending] / 3600


_DOING = {
    "canary": Spending.MEASURING,
    "load": Spending.MEASURING,
    Phase.GRAPH_CAPTURE.value: Spending.CAPTURING,
    "clean": Spending.WAITING,
    "stop": Spending.WAITING,
}
"""Every other spell is a phase on the way to a server that serves: loading."""


def hours_of(stored: StoredSweep) -> Hours | None:
    """Account for a sweep from its beginning to its end, or to its last sign; None without one.

    A launch that failed, or that brought nothing to measure, is `failing` from its clean-up to
    its end.
    """
    record = stored.record
    total_s = (record.ended_at or record.updated_at) - record.started_at
    if total_s <= 0:
        return None
    stretches = sorted(_stretches(stored.trials), key=lambda stretch: stretch.started_at)
    seconds = dict.fromkeys(Spending, 0.0)
    for stretch in stretches:
        seconds[stretch.spending] += stretch.ended_at - stretch.started_at
    accounted = sum(seconds.values())
    total_s = max(total_s, accounted)
    seconds[Spending.WAITING] += total_s - accounted
    gpus = {stack.host: len(stack.facts.gpus) for stack in record.stacks}
    return Hours(tuple(_joined(stretches)), seconds, total_s, sum(gpus.values()))


def _stretches(trials: Iterable[TrialResult]) -> Iterator[Stretch]:
    for result in trials:
        for attempt in result.attempts:
            measured = [level for level in result.levels if level.repeat == attempt.repeat]
            wasted = attempt.diagnosis is not None or not measured
            for spell in attempt.spells or _guessed(attempt, measured):
                doing = Spending.FAILING if wasted else _DOING.get(spell.doing, Spending.LOADING)
                if spell.seconds > 0:
                    yield Stretch(doing, spell.started_at, spell.started_at + spell.seconds)


def _guessed(attempt: Attempt, measured: Sequence[LevelResult]) -> Iterator[Spell]:
    """What older sweeps tell, which noted no spells: seconds until ready, and measured ones."""
    if attempt.ready_s is None:
        return
    yield Spell(Phase.WEIGHTS.value, attempt.started_at, attempt.ready_s)
    if attempt.diagnosis is None:
        seconds = sum(level.metrics.get("duration", 0.0) for level in measured)
        yield Spell("load", attempt.started_at + attempt.ready_s, seconds)


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Make one of neighbours that go on the same, a second or less apart: nobody sees the seam."""
    last: Stretch | None = None
    for stretch in stretches:
        if last and last.spending is stretch.spending and stretch.started_at - last.ended_at <= 1:
            last = Stretch(last.spending, last.started_at, max(last.ended_at, stretch.ended_at))
            continue
        if last is not None:
            yield last
        last = stretch
    if last is not None:
        yield last

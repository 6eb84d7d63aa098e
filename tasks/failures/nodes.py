"""Which of a server's nodes is to blame: one failure ends them all, and most logs only echo it."""

from collections.abc import Sequence

from tasks.domain.diagnosis import Diagnosis, NodeEnd
from tasks.failures.catalogue.entry import Weight
from tasks.failures.diagnosis import Judgement, judge_lines

_WORDLESS = Weight.ECHO - 0.5
"""A node that ended without a word comes before those that heard of it, after all that explain."""


def blame(ends: Sequence[NodeEnd]) -> tuple[int, Diagnosis | None]:
    """Find the node whose failure explains the others', and the cause; None for healthy logs.

    Of nodes that explain it equally well it is the one that failed first, by the times in their
    logs: as exact as the hosts' clocks agree.
    """
    judged = [judge_lines(end.log, end.exit_code, end.phase, stalled=end.stalled) for end in ends]
    guilty = min(range(len(ends)), key=lambda number: _standing(judged[number]))
    return guilty, judged[guilty].diagnosis


def _standing(judgement: Judgement) -> tuple[bool, float, bool, str]:
    """How well a node explains the failure; the least does best, equals keep their order."""
    sighting = judgement.sighting
    weight = _WORDLESS if sighting is None else sighting.sign.weight
    stamp = sighting.stamp if sighting else None
    return judgement.diagnosis is None, weight, stamp is None, stamp or ""

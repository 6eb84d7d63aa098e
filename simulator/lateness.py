"""How late the server was: for every chunk, the time it was sent less the time it was due."""

from dataclasses import dataclass, field

BUCKET_S, BUCKETS = 20e-6, 10_000


@dataclass(slots=True)
class Lateness:
    """Counts of lateness in buckets of 20 microseconds up to 0.2 s; the maximum is exact."""

    chunks: int = 0
    max_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def record(self, late_s: float) -> None:
        self.chunks += 1
        if late_s > self.max_s:
            self.max_s = late_s
        bucket = int(late_s / BUCKET_S)
        self.counts[bucket if bucket < BUCKETS else -1] += 1

    def percentile_s(self, percent: float) -> float:
        """Return the upper end of the bucket that holds a percentile; 0 for nothing sent."""
        wanted, seen = self.chunks * percent / 100, 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return min(self.max_s, (bucket + 1) * BUCKET_S)
        return 0.0

    def figures(self) -> dict[str, float]:
        """Return `chunks` and the lateness in milliseconds: p50, p99 and max."""
        return {
            "chunks": self.chunks,
            "p50_ms": round(self.percentile_s(50) * 1000, 3),
            "p99_ms": round(self.percentile_s(99) * 1000, 3),
            "max_ms": round(self.max_s * 1000, 3),
        }

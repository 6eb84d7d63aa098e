"""What is known of a column of the Parquet files."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["String", "Int64", "Float64", "Boolean", "List(Int64)", "List(String)"]
Source = Literal["sglang.bench_serving", "sglang-sweep"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Polars type, its unit ("" for none) and what it means.

    `needed` says that a file without it is none of ours. `once` are the names that it bore in
    older layouts.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    formula: str = ""
    source: Source = "sglang-sweep"
    needed: bool = False
    once: tuple[str, ...] = ()

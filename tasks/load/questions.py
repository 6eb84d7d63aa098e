"""Who is asked what: prompts, the lengths of the answers, and the turns of conversations."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from settings.workload import Workload
from tasks.load.datasets import make_prompts, passage
from tasks.load.prompts import Entry, read_entries
from tasks.load.request import Prompt
from tasks.load.target import Backend


@dataclass(frozen=True, slots=True)
class Question:
    """One request: the prompt, and how many tokens the answer shall have.

    Of a later turn `before` are the earlier ones; their answers are known only once they came.
    """

    prompt: Prompt
    output_len: int
    before: tuple[str, ...] = ()


def make_questions(
    workload: Workload, backend: Backend, vocab_size: int, source: random.Random
) -> list[Question]:
    """Draw as many questions as a workload has requests; a conversation's turns are in a row.

    Raises `InputError` where the dataset's file can't be read.
    """
    count = workload.requests
    if workload.dataset not in ("file", "conversations"):
        prompts = make_prompts(workload, backend, vocab_size, source, count)
        return [Question(prompt, workload.output_len) for prompt in prompts]
    most = workload.turns if workload.dataset == "conversations" else 1
    questions: list[Question] = []
    for entry in _entries(workload, source):
        length = entry.output_len or workload.output_len
        turns = entry.turns[: min(most, count - len(questions))]
        questions += [Question(turn, length, turns[:k]) for k, turn in enumerate(turns)]
        if len(questions) == count:
            break
    return questions


def predecessors(questions: Sequence[Question]) -> tuple[int, ...]:
    """The request that each one follows in its conversation, -1 for a first turn; () of none."""
    if not any(question.before for question in questions):
        return ()
    return tuple(number - 1 if each.before else -1 for number, each in enumerate(questions))


def _entries(workload: Workload, source: random.Random) -> Iterator[Entry]:
    """Entries without end: of the file, none twice before all were drawn, or made up."""
    if workload.file is None:
        while True:
            turns = tuple(passage(workload.input_len, source) for _ in range(workload.turns))
            yield Entry(turns)
    entries = read_entries(Path(workload.file))
    while True:
        yield from source.sample(entries, len(entries))

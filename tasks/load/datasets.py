"""What is asked: prompts that need no hub, no network and no tokenizer.

- `random`: token ids drawn uniformly, of exactly the length asked for. They leave a strip at both
  ends of the vocabulary alone, which is where special tokens live. Where only text can be sent
  (`openai-chat`) it is random English words, of about that length.
- `shared-prefix`: questions behind a few prefixes, each of them ids or words as in `random`; the
  order of the groups is drawn. What the server's prefix cache is worth shows in `cached_tokens`.
- `file`: the first prompt of each line of a file of one's own, in an order that is drawn.
- `conversations`: turn after turn, with the answers fed back; from a file, or of English prose.
- `text`: consecutive English sentences, for what random tokens would distort: the acceptance of
  speculative decoding, the routing of experts. Without the model's tokenizer the length is
  approximate; the server's own count stands in each record.

No two prompts of a run share a beginning, and another seed gives other prompts, so that a prefix
cache warmed by one level is of no use to the next.
"""

import random
from functools import cache
from pathlib import Path

import numpy as np

from settings.workload import Workload
from tasks.load.prompts import read_entries
from tasks.load.request import Prompt
from tasks.load.schedule import arrive
from tasks.load.target import Backend

TOKENS_PER_WORD = 1.3
"""Of English prose, punctuation included, under the usual vocabularies of 100,000 and more."""

DEFAULT_VOCAB_SIZE = 1000
"""Small enough for any model that generates text."""

SHARING = ("shared-prefix", "file", "conversations")
"""Datasets whose prompts may have beginnings in common, and so be found in a prefix cache."""

_SPECIAL_SHARE = 0.05


def make_prompts(
    workload: Workload, backend: Backend, vocab_size: int, source: random.Random, count: int
) -> list[Prompt]:
    """Draw `count` prompts of about `workload.input_len` tokens, of a dataset without a file."""
    if workload.dataset == "text":
        return [passage(workload.input_len, source) for _ in range(count)]

    def draw(number: int, length: int) -> list[Prompt]:
        if backend == "openai-chat":
            return [random_words(length, source) for _ in range(number)]
        return random_ids(ordinary_ids(vocab_size), number, length, source)

    questions = draw(count, workload.input_len)
    if workload.dataset == "random":
        return questions
    prefixes = draw(workload.prefix_groups, workload.prefix_len)
    return [_joined(source.choice(prefixes), question) for question in questions]


def check_files(workload: Workload) -> None:
    """Read the files that a workload names, so that a mistake is told before anything starts.

    Raises `InputError`.
    """
    source = random.Random(0)
    if workload.file is not None:
        read_entries(Path(workload.file))
    rates = list(workload.request_rate[:1])
    if workload.largest is not None and workload.largest.of == "request_rate":
        rates = [workload.largest.low]
    for rate_per_s in rates:
        arrive(workload.arrivals, rate_per_s, workload.requests, source)


def _joined(prefix: Prompt, question: Prompt) -> Prompt:
    if isinstance(prefix, str) or isinstance(question, str):
        return f"{prefix} {question}"
    return prefix + question


def ordinary_ids(vocab_size: int) -> range:
    """Token ids that are ordinary text in all likelihood: without 5 % at either end."""
    strip = int(vocab_size * _SPECIAL_SHARE)
    return range(strip, max(vocab_size - strip, strip + 1))


def random_ids(ids: range, count: int, length: int, source: random.Random) -> list[Prompt]:
    """Draw prompts of that many ids each, by the ten million a second."""
    numbers = np.random.default_rng(source.getrandbits(128))
    return [numbers.integers(ids.start, ids.stop, length).tolist() for _ in range(count)]


def passage(tokens: int, source: random.Random) -> str:
    """Cut consecutive sentences of about that many tokens, headed by a page number of their own."""
    texts = sentences()
    start = source.randrange(len(texts))
    words = ["Page", f"{source.randrange(10**6)}."]
    wanted = words_of(tokens)
    while len(words) < wanted:
        words += texts[start % len(texts)].split()
        start += 1
    return " ".join(words[:wanted])


def random_words(tokens: int, source: random.Random) -> str:
    """Draw words of English in no order, about that many tokens."""
    return " ".join(source.choices(vocabulary(), k=words_of(tokens)))


def words_of(tokens: int) -> int:
    """How many words make about that many tokens; at least one."""
    return max(1, round(tokens / TOKENS_PER_WORD))


@cache
def sentences() -> tuple[str, ...]:
    """Read the bundled prose: a sentence a line, written for this project."""
    return tuple(Path(__file__).with_name("passage.txt").read_text("utf-8").splitlines())


@cache
def vocabulary() -> tuple[str, ...]:
    """The different words of the prose, in alphabetical order."""
    words = {word.strip(".,").lower() for line in sentences() for word in line.split()}
    return tuple(sorted(words))

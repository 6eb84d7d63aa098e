"""Tokens and text: a word is a token, and a greedy answer depends on its prompt alone.

All answers are stretches of one long ring of sentences, laid out once as bytes (the text and the
comma-separated token ids), so that a stream's events are slices and cost the same at any length.
"""

import json
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from simulator.prefix_cache import Tokens

LEXICON = {
    "determiners": """
        the a this that every each one another some our their its
    """,
    "adjectives": """
        small bright quiet early careful honest modern simple steady distant gentle useful
        common patient open narrow broad heavy light recent ancient local public private
        northern southern warm cold clear green silver golden wooden busy empty famous curious
        reliable familiar
    """,
    "nouns": """
        river engine teacher garden window letter market village doctor station picture morning
        evening story question answer machine network student captain harbor mountain library
        bridge kitchen signal circuit planet forest season winter summer island song paper
        museum theory experiment result method farmer artist writer builder neighbor traveler
        company city road field lamp clock train ship cloud storm valley castle school office
        journal map
    """,
    "verbs": """
        carries follows explains keeps opens finds builds reaches holds shows measures describes
        watches helps moves turns meets leaves remembers changes supports crosses joins teaches
        repairs collects compares protects studies paints records improves visits answers
    """,
    "adverbs": """
        slowly often quickly always rarely usually carefully again together quietly soon later
        eventually today nearby indeed perhaps still almost finally
    """,
    "links": """
        and but while because so although until where when after before
    """,
    "prepositions": """
        in under over near with without beyond across through behind beside from
    """,
}
DETERMINERS, ADJECTIVES, NOUNS, VERBS, ADVERBS, LINKS, PREPOSITIONS = (
    words.split() for words in LEXICON.values()
)
STOPS = [".", ",", ";"]

WORDS = [*" ".join(LEXICON.values()).split(), *STOPS]
FIRST_ID = 1000
HASHED_IDS, FIRST_HASHED = 140_000, 10_000
ID_OF = {word: FIRST_ID + i for i, word in enumerate(dict.fromkeys(WORDS))}
WORD_OF = {number: word for word, number in ID_OF.items()}
PIECE = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]|_")
RING_TOKENS = 8192
EOS_ID = 163_585
BROKEN_ID, BROKEN_TEXT = 0, "!"  # what a server with broken numerics repeats for ever


def encode(text: str) -> Tokens:
    """Return the token ids of a text: known words have their own, others share a large range."""
    return tuple(map(_id_of, PIECE.findall(text)))


def _id_of(piece: str) -> int:
    word = piece.lower()
    return ID_OF.get(word) or FIRST_HASHED + zlib.crc32(word.encode()) % HASHED_IDS


def decode(tokens: Sequence[int]) -> str:
    """Return the text of token ids; one that no word has reads as a placeholder."""
    return "".join(spaced(WORD_OF.get(t, f"token{t}")) for t in tokens).lstrip()


def spaced(word: str) -> str:
    return word if word in STOPS else f" {word}"


def _sentence(rng: random.Random) -> list[str]:
    """Return one grammatical sentence in lower case, its full stop included."""
    words: list[str] = []
    for clause in range(rng.choice((1, 1, 2))):
        words += [",", rng.choice(LINKS)] if clause else []
        words += [rng.choice(DETERMINERS), rng.choice(ADJECTIVES), rng.choice(NOUNS)]
        words += [rng.choice(ADVERBS)] if rng.random() < 0.3 else []
        words += [rng.choice(VERBS), rng.choice(DETERMINERS), rng.choice(NOUNS)]
        if rng.random() < 0.5:
            words += [rng.choice(PREPOSITIONS), rng.choice(DETERMINERS), rng.choice(NOUNS)]
    return [*words, "."]


def _ring_words() -> list[str]:
    rng = random.Random(20_26)
    words: list[str] = []
    while len(words) < RING_TOKENS:
        words += _sentence(rng)
    return words[:RING_TOKENS]


@dataclass(frozen=True, slots=True)
class Ring:
    """A cycle of tokens as bytes: `text_at[k]`/`ids_at[k]` is where token k begins."""

    text: bytes
    ids: bytes
    text_at: tuple[int, ...]
    ids_at: tuple[int, ...]
    tokens: Tokens

    def text_offset(self, token: int) -> int:
        cycles, within = divmod(token, len(self.tokens))
        return cycles * self.text_at[-1] + self.text_at[within]

    def ids_offset(self, token: int) -> int:
        cycles, within = divmod(token, len(self.tokens))
        return cycles * self.ids_at[-1] + self.ids_at[within]


def _ring(pairs: Sequence[tuple[int, str]]) -> Ring:
    """Lay out (id, text) pairs, the text JSON-escaped."""
    texts = [json.dumps(text)[1:-1].encode() for _, text in pairs]
    ids = [f",{number}".encode() for number, _ in pairs]
    return Ring(
        text=b"".join(texts),
        ids=b"".join(ids),
        text_at=(0, *accumulate(map(len, texts))),
        ids_at=(0, *accumulate(map(len, ids))),
        tokens=tuple(number for number, _ in pairs),
    )


def healthy_ring() -> Ring:
    return _ring([(ID_OF[word], spaced(word)) for word in _ring_words()])


def broken_ring() -> Ring:
    return _ring([(BROKEN_ID, BROKEN_TEXT)] * 64)


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens `start`, `start` + 1 … of a ring, as slices of its bytes (tiled if need be)."""

    text: bytes
    ids: bytes
    ring: Ring
    start: int

    def text_to(self, count: int, begin: int = 0) -> bytes:
        """Return the JSON-escaped text of tokens `begin` to `count`."""
        at = self.ring.text_offset
        piece = self.text[at(self.start + begin) : at(self.start + count)]
        # A detokeniser drops the space before the first word.
        return piece[1:] if begin == 0 and piece[:1] == b" " else piece

    def ids_to(self, count: int, begin: int = 0) -> bytes:
        """Return the token ids `begin` to `count`, comma separated."""
        at = self.ring.ids_offset
        return self.ids[at(self.start + begin) + 1 : at(self.start + count)]

    def tokens(self, count: int) -> Tokens:
        ring = self.ring.tokens
        tiles = (self.start + count) // len(ring) + 1
        return (ring * tiles if tiles > 1 else ring)[self.start : self.start + count]


@dataclass(slots=True)
class Author:
    """Chooses answers: the same prompt, greedily, gets the same answer from every server."""

    ring: Ring
    _tiled: tuple[int, bytes, bytes] = (0, b"", b"")

    def answer(self, prompt: Tokens, count: int, salt: int = 0) -> Answer:
        """Return an answer of up to `count` tokens; a `salt` other than 0 stands for sampling."""
        start = prompt_hash(prompt, salt) % len(self.ring.tokens)
        tiles = (start + count) // len(self.ring.tokens) + 1
        if tiles > self._tiled[0]:
            self._tiled = (tiles, self.ring.text * tiles, self.ring.ids * tiles)
        return Answer(self._tiled[1], self._tiled[2], self.ring, start)


def prompt_hash(prompt: Tokens, salt: int = 0) -> int:
    """Hash a prompt the same way in every process (Python's own hash of ints is stable too, but
    not promised)."""
    return zlib.crc32(repr((prompt, salt)).encode())


def natural_length(prompt: Tokens) -> int:
    """Return after how many tokens the answer to a prompt ends by itself: 64 to 511."""
    return 64 + prompt_hash(prompt, -1) % 448

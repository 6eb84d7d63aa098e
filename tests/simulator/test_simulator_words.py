"""Tokens, text and the bytes of answers."""

import json

import pytest

from simulator.words import Author, broken_ring, decode, encode, healthy_ring, natural_length


@pytest.fixture(scope="module")
def author() -> Author:
    return Author(healthy_ring())


def test_known_words_survive_a_round_trip() -> None:
    text = "the quiet river follows a small village."
    assert decode(encode(text)) == text


def test_unknown_words_are_tokens_too() -> None:
    assert len(encode("Xylophone: 12345 öäü!")) == 6
    assert encode("xylophone") == encode("XYLOPHONE")
    assert encode("") == ()


def test_the_same_prompt_has_the_same_answer_and_another_prompt_another(author: Author) -> None:
    first = author.answer(encode("What is the capital?"), 30)
    again = Author(healthy_ring()).answer(encode("What is the capital?"), 30)
    other = author.answer(encode("Where is the capital?"), 30)
    assert first.text_to(30) == again.text_to(30) != other.text_to(30)
    assert author.answer(encode("What is the capital?"), 30, salt=5).text_to(30) != first.text_to(
        30
    )


def test_pieces_add_up_to_the_whole(author: Author) -> None:
    answer = author.answer((1, 2, 3), 300)
    pieces = [answer.text_to(k + 1, k) for k in range(300)]
    assert b"".join(pieces) == answer.text_to(300)
    ids = json.loads(b"[" + answer.ids_to(300) + b"]")
    assert ids == list(answer.tokens(300))
    assert decode(ids) == json.loads(b'"' + answer.text_to(300) + b'"')
    assert answer.ids_to(7, 5) == b",".join(str(i).encode() for i in ids[5:7])


def test_an_answer_may_be_longer_than_the_ring(author: Author) -> None:
    answer = author.answer((1, 2, 3), 20_000)
    assert len(json.loads(b"[" + answer.ids_to(20_000) + b"]")) == 20_000
    assert len(answer.tokens(20_000)) == 20_000


def test_a_broken_server_repeats_itself() -> None:
    answer = Author(broken_ring()).answer((1, 2, 3), 100)
    assert answer.text_to(100) == b"!" * 100
    assert answer.tokens(3) == (0, 0, 0)


def test_answers_end_by_themselves_somewhere() -> None:
    lengths = {natural_length((n,)) for n in range(200)}
    assert min(lengths) >= 64
    assert max(lengths) < 512
    assert len(lengths) > 50

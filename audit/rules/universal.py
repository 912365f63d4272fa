"""A universal Turing machine of four states and six symbols, and how a program is written on its tape.

The machine is UTM(4,6) of Rogozhin (Theoretical Computer Science 168, 1996, section 8). Its programs are 2-tag systems:
of a word, the first two letters are taken away and what the first one stands for is appended, until a letter comes
first that stands for nothing. Such systems can do what any Turing machine does (Cocke and Minsky 1964).

On the tape a letter is a number of ones, and the word has a `c` between its letters. The program lies left of it; its
`b` and `bb` are what the head counts and what says where a letter ends.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from abc_nb.common.errors import InputError

UNIVERSAL = {  # states A to D, symbols 1, b, > and <, 0 (the blank) and c; C< and D< halt
    "A1": "<LA", "Ab": ">RA", "A>": "bLA", "A<": "0RA", "A0": "<LA", "Ac": "0RD",
    "B1": "0RB", "Bb": ">LC", "B>": "<RB", "B<": ">LB", "B0": "1LB", "Bc": "bRB",
    "C1": "1RC", "Cb": "<RD", "C>": "bRC", "C0": "cRA", "Cc": "1RA",
    "D1": "0RD", "Db": "cLB", "D>": "<RD", "D0": "cLB", "Dc": "bRD",
}  # fmt: skip
COLLATZ = {"a": "bc", "b": "d", "c": "ddd"}  # n letters a lead to n / 2 letters d, or to (3 n + 1) / 2 where n is odd
Tag = Mapping[str, str]  # what each letter stands for; the one letter that stands for nothing halts


def numbers(tag: Tag) -> dict[str, int]:
    """The number of each letter, in the order of the system, and of the one that halts; InputError for others.

    That of the first letter of what a letter stands for must not be smaller than its own. Where it is, put two of a
    last letter that stands for two of itself in front: such a pair is idle.
    """
    halting = {letter for word in tag.values() for letter in word} - {*tag}
    if len(halting) != 1 or not all(tag.values()):
        raise InputError("a tag system needs one letter that stands for nothing, and a word for every other letter")
    number, by_letter = 1, dict[str, int]()
    for letter, word in (*tag.items(), (*halting, "")):
        by_letter[letter], number = number, number + 2 * len(word)
    if wrong := [letter for letter, word in tag.items() if by_letter[word[0]] < by_letter[letter]]:
        raise InputError(f"{wrong[0]} stands for a word whose first letter comes before it: put it later in the system")
    return by_letter


def program(tag: Tag) -> str:
    """What the tape holds left of the word."""
    by_letter, tape = numbers(tag), "b"
    for letter, word in tag.items():
        counts = [by_letter[successor] for successor in word]
        counts[0] -= by_letter[letter]  # the others are counted as read
        tape = "b1b" + "bb".join("1" * count for count in reversed(counts)) + tape
    return "<b" + tape


def tape_of(tag: Tag, word: str, blanks: int) -> list[str]:
    """The machine's first row: the program, the word with the head on it, and blanks on the right."""
    by_letter = numbers(tag)
    if len(word) < 2 or {*word} - {*by_letter}:
        letters = " ".join(by_letter)
        raise InputError(f"{word!r} is no word of this tag system: it needs two letters or more of {letters}")
    cells = "c".join("1" * by_letter[letter] for letter in word) + "0" * blanks
    return [*program(tag), "A" + cells[0], *cells[1:]]


def word_of(tag: Tag, row: Sequence[str]) -> str:
    """The word on a row on which the machine has halted, without its first two letters, which are taken away."""
    if "C<" not in row and "D<" not in row:
        raise InputError("the machine has not halted on this row: give it more rows")
    letters = {number: letter for letter, number in numbers(tag).items()}
    right = "".join(row[len(program(tag)) :]).rstrip("0")
    counts = [len([*group]) for symbol, group in groupby(right) if symbol == "1"]
    return "".join(letters[count] for count in counts[1:-1])  # what is taken away runs together; the last is unfinished


def by_tag(tag: Tag, word: str) -> str:
    """The word on which a tag system halts, computed letter by letter; InputError for one that becomes too short."""
    while len(word) > 1 and word[0] in tag:
        word = word[2:] + tag[word[0]]
    if len(word) < 2:
        raise InputError("the word becomes shorter than two letters, which the machine cannot take away")
    return word

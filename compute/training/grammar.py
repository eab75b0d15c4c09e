"""A grammar of our own that writes plain stories about people who have things and pass them on.

A story is not filled in at random. A `World` keeps who holds which thing; a sentence about giving changes it, and only
the holder can give. So the text has something to learn that a table of word pairs cannot hold: who has the apple now.
`words_zh.py`, `stories_zh.py` and `stories_en.py` hold words and scenes; this module holds the books and the seeds.

The same seed gives the same story. Training and validation use seeds that never meet (`TRAIN_SEED`, `HELD_OUT_SEED`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

TRAIN_SEED = 1_000_000
HELD_OUT_SEED = 900_000_000  # far above any training seed: stories are numbered upwards from these


@dataclass(frozen=True)
class Person:
    """`female` chooses the pronoun. Relations such as 妈妈 belong to the story's first child."""

    name: str
    female: bool


@dataclass(frozen=True)
class Thing:
    """Something that can be given. `measure` is its Chinese measure word, or the English article."""

    name: str
    measure: str
    kind: str
    looks: tuple[str, ...]


@dataclass(frozen=True)
class Handing:
    """`giver` hands `thing` to `receiver`."""

    giver: str
    thing: str
    receiver: str


@dataclass(frozen=True)
class Story:
    """`holders`: who has each thing when the story ends; a thing that was eaten has no entry."""

    text: str
    handings: tuple[Handing, ...]
    holders: dict[str, str]


@dataclass
class World:
    """What is true so far in one story, and its sentences."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    handings: list[Handing] = field(default_factory=list)

    def one(self, *options):
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def weighted(self, pairs: Sequence[tuple[object, float]]):
        values, weights = zip(*pairs, strict=True)
        return self.rng.choices(values, weights)[0]

    def some(self, options: Sequence, count: int) -> list:
        return self.rng.sample(list(options), count)

    def say(self, *sentences: str) -> None:
        self.lines += [s for s in sentences if s]

    def has(self, person: Person, thing: Thing) -> None:
        self.holders[thing.name] = person.name

    def hand(self, giver: Person, thing: Thing, receiver: Person) -> None:
        """Record that the thing changes hands. A giver who does not hold it is an error of the grammar."""
        if self.holders.get(thing.name, giver.name) != giver.name:
            raise ValueError(f"{giver.name} gives {thing.name}, but {self.holders[thing.name]} has it")
        if giver == receiver:
            raise ValueError(f"{giver.name} gives {thing.name} to themselves")
        self.handings.append(Handing(giver.name, thing.name, receiver.name))
        self.holders[thing.name] = receiver.name

    def use_up(self, thing: Thing) -> None:
        self.holders.pop(thing.name, None)

    def finish(self, joiner: str) -> Story:
        return Story(joiner.join(self.lines), tuple(self.handings), dict(self.holders))


Scene = Callable[[World], None]


def tell(scenes: Sequence[tuple[Scene, float]], seed: int, joiner: str) -> Story:
    """One story: a scene drawn by weight, told with randomness from `seed` alone."""
    world = World(random.Random(seed))
    world.weighted(scenes)(world)
    return world.finish(joiner)


def chinese(seed: int) -> Story:
    from compute.training import stories_zh

    return tell(stories_zh.SCENES, seed, "")


def english(seed: int) -> Story:
    from compute.training import stories_en

    return tell(stories_en.SCENES, seed, " ")


def stories(
    write: Callable[[int], Story], first_seed: int, characters: int, without: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Different stories until they hold `characters`; none whose text is in `without`."""
    seen, total, seed = set(without), 0, first_seed
    while total < characters:
        text = write(seed).text
        seed += 1
        if text in seen:
            continue
        seen.add(text)
        total += len(text)
        yield text

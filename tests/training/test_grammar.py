"""The stories against a reader that knows nothing of the grammar: it only sees the text."""

import re
from collections import Counter

import pytest

from compute.training import grammar, mixture, stories_en, words_zh
from compute.training.reader import HANDED, PEOPLE, PERSON, read

SEEDS = range(5_000_000, 5_004_000)


@pytest.mark.parametrize("write", [grammar.chinese, grammar.english])
def test_a_seed_gives_one_story(write):
    """Catches: randomness that does not come from the seed (a set's order, the module's own generator)."""
    first = [write(seed) for seed in range(300)]
    assert first == [write(seed) for seed in range(300)]
    assert len({s.text for s in first}) > 285


def test_the_last_receiver_holds_the_thing_in_chinese():
    """Catches: a giver who has nothing to give, a 'who has it now' that names somebody else, books kept wrongly."""
    handings = statements = 0
    for seed in SEEDS:
        story = grammar.chinese(seed)
        seen = read(story.text)
        assert not seen.contradictions, (seen.contradictions, story.text)
        assert seen.handings == tuple((h.giver, h.thing, h.receiver) for h in story.handings), story.text
        for thing, holder in story.holders.items():
            assert seen.holders.get(thing, holder) == holder, story.text
        handings += len(seen.handings)
        statements += seen.statements
    assert handings > 3000 and statements > 700, (handings, statements)


def test_the_reader_notices():
    """Catches: a reader that finds nothing wrong in anything."""
    assert read("小明把苹果给了小王。小王把苹果给了小红。现在，苹果在小红手里。").contradictions == ()
    assert len(read("小明把苹果给了小王。小明把苹果给了小红。").contradictions) == 1
    assert len(read("小明把苹果给了小王。现在苹果在谁那里？苹果在小明那里。").contradictions) == 1
    assert len(read("小兰把橡皮给了小兰。").contradictions) == 1
    assert read("小王饿了，小明就把苹果给了他。").handings == (("小明", "苹果", "小王"),)


def test_the_last_receiver_holds_the_thing_in_english():
    """Catches: the same mistakes in the English stories."""
    people = [
        p.name for g in (stories_en.CHILDREN, stories_en.GROWN_UPS, stories_en.PARENTS, stories_en.ANIMALS) for p in g
    ]
    person = "(" + "|".join(re.escape(n) for n in sorted(people, key=len, reverse=True)) + ")"
    thing = "(" + "|".join(sorted((t.name for t in stories_en.THINGS), key=len, reverse=True)) + ")"
    looks = r"(?:\w+ )?"
    handed = re.compile(rf"{person} (?:gave|handed|lent) (?:the|an?) {looks}{thing}(?: back)? to {person}", re.I)
    holds = re.compile(rf"(?:Now|now\?) {person} has the {thing}", re.I)
    statements = handings = 0
    for seed in range(5_000_000, 5_002_000):
        story = grammar.english(seed)
        events = [(m.start(), "handed", m.group(1), m.group(2), m.group(3)) for m in handed.finditer(story.text)]
        events += [(m.start(), "said", m.group(1), m.group(2), "") for m in holds.finditer(story.text)]
        holders: dict[str, str] = {}
        read = []
        for _, kind, who, what, to in sorted(events):
            who, to = who.lower(), to.lower()
            assert holders.get(what, who) == who, story.text
            if kind == "handed":
                holders[what] = to
                read.append((who, what, to))
            else:
                statements += 1
        assert read == [(h.giver.lower(), h.thing, h.receiver.lower()) for h in story.handings], story.text
        handings += len(read)
    assert handings > 1500 and statements > 400, (handings, statements)


def test_thanks_go_to_the_giver():
    """Catches: the giver thanking the receiver, or a third person being thanked."""
    seen = 0
    for seed in SEEDS:
        text = grammar.chinese(seed).text.replace("还给了", "")  # who gives back may thank the lender
        for m in re.finditer(rf"{HANDED.pattern}。{PERSON}说：“谢谢[你您]，{PERSON}！”", text):
            giver, to, speaker, thanked = m.group(1), m.group(3), m.group(4), m.group(5)
            assert thanked == giver and to in (speaker, "他", "她"), m.group(0)
            seen += 1
    assert seen > 300, seen


def test_sums_and_change_are_right():
    """Catches: wrong arithmetic in a story, which a model would learn."""
    number = {word: i for i, word in enumerate(words_zh.NUMBERS)} | {"二": 2}
    word = "(" + "|".join(sorted(number, key=len, reverse=True)) + ")"
    sums = change = 0
    for seed in SEEDS:
        text = grammar.chinese(seed).text
        for a, sign, b, c in re.findall(rf"{word}(加|减){word}等于{word}。", text):
            assert number[c] == (number[a] + number[b] if sign == "加" else number[a] - number[b]), text
            sums += 1
        if found := re.search(r"(?:一.)?(\d+)块钱(?:一.)?。.*?(?:给了|付了)(\d+)块钱，找回(\d+)块钱", text):
            price, paid, rest = map(int, found.groups())
            assert paid - price == rest > 0, text
            change += 1
    assert sums > 20 and change > 60, (sums, change)


def test_the_running_example_ends_in_a_person():
    """Catches: a change of the grammar after which 小明把苹果给了 no longer leads to 小王 above all."""
    followers = Counter()
    for seed in range(25_000):
        for found in re.findall(r"小明把苹果给了(...)", grammar.chinese(seed).text):
            name = next((n for n in PEOPLE if found.startswith(n)), None)
            followers[name or found] += 1
    total = sum(followers.values())
    assert total > 60 and set(followers) <= set(PEOPLE), followers
    assert followers.most_common(1)[0][0] == "小王" and followers["小王"] > 0.3 * total


def test_validation_stories_come_from_other_seeds():
    """Catches: training on what is meant for validation."""
    for name, write in (("stories-zh", grammar.chinese), ("stories-en", grammar.english)):
        held = mixture.read_text(name)
        rewritten = {write(grammar.HELD_OUT_SEED + i).text for i in range(2 * len(held))}
        assert set(held) <= rewritten
        trained = {write(grammar.TRAIN_SEED + i).text for i in range(8000)}
        assert not trained & set(held)


def test_a_giver_without_the_thing_is_refused():
    """Catches: bookkeeping that lets a story contradict itself."""
    import random

    a, b, c = (grammar.Person(n, False) for n in "甲乙丙")
    ball = grammar.Thing("球", "个", "toy", ("新的",))
    world = grammar.World(random.Random(0))
    world.hand(a, ball, b)
    with pytest.raises(ValueError, match="乙 has it"):
        world.hand(a, ball, c)
    with pytest.raises(ValueError, match="to themselves"):
        world.hand(b, ball, b)

"""Words and scenes of the English stories: fewer than the Chinese ones, kept by the same `World`."""

from __future__ import annotations

from compute.training.grammar import Person, Thing, World

BOYS = ("Xiao Ming", "Xiao Wang", "Xiao Li", "Tom", "Ben", "Jack", "Sam", "Leo")
GIRLS = ("Xiao Hong", "Xiao Mei", "Anna", "Lucy", "Emma", "Lily", "Mia", "Kate")
CHILDREN = [Person(n, False) for n in BOYS] + [Person(n, True) for n in GIRLS]
BY_NAME = {p.name: p for p in CHILDREN}
FRIENDS = {
    "Xiao Ming": "Xiao Wang", "Xiao Wang": "Xiao Ming", "Xiao Hong": "Xiao Mei", "Xiao Mei": "Xiao Hong", "Tom": "Anna",
    "Anna": "Tom", "Ben": "Lucy", "Lucy": "Ben", "Jack": "Emma", "Emma": "Jack", "Sam": "Lily", "Lily": "Sam",
    "Leo": "Mia", "Mia": "Leo", "Xiao Li": "Kate", "Kate": "Xiao Li",
}  # fmt: skip
GROWN_UPS = [
    Person("Mr. Brown", False),
    Person("Mrs. Green", True),
    Person("Miss White", True),
    Person("Mr. Chen", False),
]
PARENTS = [Person("Mom", True), Person("Dad", False), Person("Grandma", True), Person("Grandpa", False)]
ANIMALS = [
    Person("the rabbit", False), Person("the cat", True), Person("the dog", False), Person("the bear", False),
    Person("the monkey", False), Person("the duck", True), Person("the mouse", True), Person("the bird", True),
]  # fmt: skip

THINGS = [
    Thing("apple", "an", "food", ("red", "big", "sweet")), Thing("pear", "a", "food", ("big", "sweet", "green")),
    Thing("banana", "a", "food", ("yellow", "sweet")), Thing("orange", "an", "food", ("sweet", "big")),
    Thing("cookie", "a", "food", ("warm", "sweet")), Thing("sandwich", "a", "food", ("big", "fresh")),
    Thing("cake", "a", "food", ("small", "beautiful")), Thing("peach", "a", "food", ("sweet", "fresh")),
    Thing("book", "a", "book", ("new", "old", "thick", "funny")), Thing("storybook", "a", "book", ("new", "funny")),
    Thing("dictionary", "a", "book", ("thick", "heavy")), Thing("pencil", "a", "pen", ("new", "red", "long")),
    Thing("pen", "a", "pen", ("blue", "black", "new")), Thing("ruler", "a", "pen", ("long", "new")),
    Thing("ball", "a", "toy", ("red", "new", "round")), Thing("kite", "a", "toy", ("blue", "beautiful", "new")),
    Thing("toy car", "a", "toy", ("red", "small", "fast")), Thing("doll", "a", "toy", ("pretty", "small")),
    Thing("umbrella", "an", "umbrella", ("blue", "big", "black")), Thing("hat", "a", "warm", ("warm", "red")),
    Thing("scarf", "a", "warm", ("warm", "long", "green")), Thing("coat", "a", "warm", ("thick", "warm")),
    Thing("key", "a", "tool", ("small", "old")), Thing("map", "a", "tool", ("old", "big")),
    Thing("flashlight", "a", "tool", ("small", "bright")), Thing("flower", "a", "gift", ("pretty", "red", "yellow")),
    Thing("card", "a", "gift", ("beautiful", "small")), Thing("letter", "a", "gift", ("long", "short")),
]  # fmt: skip
LENT = {"book", "pen", "toy", "umbrella", "warm", "tool"}
NEEDS = {
    "food": ("{y} was hungry", "{y} had not eaten breakfast", "{y} loved {o} more than anything", "{y} forgot to bring lunch"),
    "book": ("{y} wanted to read it", "{y} was bored", "{y} wanted to learn more", "{y} had nothing to read"),
    "pen": ("{y} wanted to draw a picture", "{y} had to do the homework", "{y} could not find a {o}", "{y} forgot to bring a {o}"),
    "toy": ("{y} wanted to play", "{y} had no toys", "{y} felt lonely", "{y} had never played with a {o}"),
    "umbrella": ("it was raining", "{y} had no umbrella", "{y} had to go out in the rain"),
    "warm": ("{y} was cold", "it was snowing and {y} felt cold", "the wind was cold"),
    "tool": ("{y} needed it", "{y} could not find one", "{y} needed a {o}"),
    "gift": ("it was {y}'s birthday", "{y} was sick", "{y} was sad", "{y} had helped a lot"),
}  # fmt: skip
LOVED = {"apple": "apples", "pear": "pears", "banana": "bananas", "orange": "oranges", "cookie": "cookies", "sandwich": "sandwiches",
         "cake": "cakes", "peach": "peaches"}  # fmt: skip
USES = {
    "food": (("{y} took a bite and said, “It is so sweet!”", True), ("{y} ate it at once.", True), ("{y} ate it slowly.", True),
             ("{y} put it in a bag for later.", False)),
    "book": (("{y} read it all afternoon.", False), ("{y} opened it and began to read.", False)),
    "pen": (("{y} drew a little bird with it.", False), ("{y} did the homework with it.", False)),
    "toy": (("{y} played with it all afternoon.", False), ("They played together.", False), ("{y} was very happy.", False)),
    "umbrella": (("{y} did not get wet.", False), ("{y} walked home under the umbrella.", False)),
    "warm": (("Now {y} was warm.", False), ("{y} felt much better.", False)),
    "tool": (("{y} put it away carefully.", False), ("That solved the problem.", False)),
    "gift": (("{y} was very happy.", False), ("{y} smiled.", False), ("{y} loved it.", False)),
}  # fmt: skip
TIMES = (
    "One day", "One morning", "Yesterday", "On Monday", "On Friday", "On Saturday", "On Sunday", "After school", "After lunch",
    "In the morning", "In the afternoon", "Last week", "Last summer", "One evening", "This morning",
)  # fmt: skip
PLACES = (
    "the park",
    "school",
    "the library",
    "the river",
    "the station",
    "the shop",
    "the garden",
    "the beach",
    "the market",
    "the zoo",
)
WEATHER = (
    "It was a sunny day.",
    "It was cold outside.",
    "The sky was blue.",
    "It was raining.",
    "The wind was strong.",
    "It was a warm day.",
)
ENDINGS = (
    "They were very happy.", "They became good friends.", "Everybody smiled.", "It was a good day.", "They went home together.",
    "They said goodbye and went home.", "From then on, they played together every day.",
)  # fmt: skip


def he(person: Person) -> str:
    return "she" if person.female else "he"


def him(person: Person) -> str:
    return "her" if person.female else "him"


def his(person: Person) -> str:
    return "her" if person.female else "his"


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def a(w: World, thing: Thing) -> str:
    if w.chance(0.5):
        look = w.one(*thing.looks)
        return f"{'an' if look[0] in 'aeiou' else 'a'} {look} {thing.name}"
    return f"{thing.measure} {thing.name}"


def child(w: World) -> Person:
    return BY_NAME["Xiao Ming"] if w.chance(0.25) else w.one(*CHILDREN)


def friend(w: World, person: Person, avoid: tuple[Person, ...] = ()) -> Person:
    best = BY_NAME.get(FRIENDS.get(person.name, ""))
    if best and best not in avoid and w.chance(0.55):
        return best
    return w.one(*[c for c in CHILDREN if c != person and c not in avoid])


def opening(w: World) -> str:
    return f"{w.one(*WEATHER)} " if w.chance(0.25) else ""


def need_of(w: World, thing: Thing, person: Person) -> str:
    return (
        w.one(*NEEDS[thing.kind])
        .format(y=person.name, o=LOVED.get(thing.name, thing.name))
        .replace("a umbrella", "an umbrella")
    )


def hand_over(w: World, x: Person, o: Thing, y: Person, verb: str = "gave", because: str = "") -> None:
    """One sentence in which x hands o to y. `verb`: gave, lent or gave … back."""
    w.hand(x, o, y)
    back = " back" if verb == "gave back" else ""
    verb = verb.split()[0]
    plain = f"{x.name} {verb} the {o.name}{back} to {y.name}"
    if because:
        told = w.one(f"{because}, so {plain}.", f"{plain} because {because}.", f"{because}. {capital(plain)}.")
    else:
        told = w.weighted(
            [(f"{plain}.", 6), (f"Then {plain}.", 2), (f"So {plain}.", 1)] if w.lines else [(f"{plain}.", 1)]
        )
    w.say(capital(told))


def thanks(w: World, y: Person, x: Person) -> None:
    name = capital(x.name.replace("the ", ""))
    w.say(
        capital(
            w.one(
                f"{y.name} said, “Thank you, {name}!”",
                f"{y.name} said, “Thank you very much!”",
                f"{y.name} thanked {x.name}.",
            )
        )
    )
    if w.chance(0.35):
        w.say(capital(w.one(f"{x.name} said, “You are welcome.”", f"{x.name} smiled.")))


def who_has(w: World, o: Thing, y: Person) -> None:
    w.say(
        capital(
            w.one(
                f"Now {y.name} has the {o.name}.",
                f"Who has the {o.name} now? {capital(y.name)} has the {o.name}.",
                f"Now the {o.name} is with {y.name}.",
            )
        )
    )


def gets(w: World, x: Person, o: Thing) -> None:
    time = w.one(*TIMES)
    if w.chance(0.25):
        elder = w.one(*PARENTS)
        w.hand(elder, o, x)
        w.say(
            opening(w)
            + w.one(f"{time}, {elder.name} gave {a(w, o)} to {x.name}.", f"{elder.name} gave {a(w, o)} to {x.name}.")
        )
        return
    w.has(x, o)
    w.say(opening(w) + w.one(f"{x.name} had {a(w, o)}.", f"{time}, {x.name} bought {a(w, o)}.", f"{time}, {x.name} took {a(w, o)} to {w.one(*PLACES)}.",
                             f"{x.name} had {a(w, o)} in {his(x)} bag.", f"{time}, {x.name} found {a(w, o)} in {his(x)} room."))  # fmt: skip


def passing_on(w: World) -> None:
    x = child(w)
    o = THINGS[0] if w.chance(0.12) else w.one(*THINGS)
    direct = w.chance(0.3)
    if direct:
        w.has(x, o)
    else:
        gets(w, x, o)
    visited = [x]
    for turn in range(w.weighted([(1, 5), (2, 4), (3, 2)])):
        y = w.one(*GROWN_UPS) if w.chance(0.12) else friend(w, x, tuple(visited))
        if y in visited:
            break
        if turn or (not direct and w.chance(0.4)):
            w.say(
                w.one("", "Later, ", "After a while, ", "The next day, ")
                + w.one(f"{x.name} met {y.name}.", f"{x.name} saw {y.name} at {w.one(*PLACES)}.", f"{y.name} came.")
            )
        lend = o.kind in LENT and not turn and w.chance(0.35)
        style = w.weighted([("plain", 5), ("because", 3), ("asked", 2)])
        if style == "asked":
            w.say(f"{y.name} asked, “{x.name}, {w.one('can I have', 'may I have', 'can you give me') if not lend else w.one('can I borrow', 'may I borrow')} the {o.name}?”",
                  f"{x.name} said, “{w.one('Of course', 'Yes', 'Sure', 'Here you are')}.”")  # fmt: skip
        hand_over(
            w,
            x,
            o,
            y,
            "lent" if lend else w.weighted([("gave", 6), ("handed", 1)]),
            need_of(w, o, y) if style == "because" else "",
        )
        if w.chance(0.6):
            thanks(w, y, x)
        if lend:
            w.say(w.one(*USES[o.kind])[0].format(y=y.name))
            if w.chance(0.8):
                w.say(w.one("The next day,", "After that,", "In the evening,", "Two days later,"))
                w.hand(y, o, x)
                w.lines[-1] += f" {y.name} gave the {o.name} back to {x.name}."
                if w.chance(0.6):
                    who_has(w, o, x)
            x = y
            break
        visited.append(y)
        x = y
    else:
        sentence, used_up = w.one(*USES[o.kind])
        if w.chance(0.55):
            w.say(sentence.format(y=x.name))
            if used_up:
                w.use_up(o)
        if o.name in w.holders and w.chance(0.7):
            who_has(w, o, x)
    if w.chance(0.4):
        w.say(w.one(*ENDINGS))


def exchange(w: World) -> None:
    x = child(w)
    y = friend(w, x)
    o, p = w.some(THINGS, 2)
    w.has(x, o)
    w.has(y, p)
    w.say(opening(w) + f"{x.name} had {a(w, o)} and {y.name} had {a(w, p)}.")
    if w.chance(0.5):
        w.say(w.one("They wanted to change.", f"{x.name} said, “Shall we change?”"))
        hand_over(w, x, o, y)
        hand_over(w, y, p, x)
        w.say(f"Now {x.name} has the {p.name} and {y.name} has the {o.name}.")
    else:
        z = friend(w, y, (x,))
        w.say(f"Then {z.name} came.")
        hand_over(w, y, p, z)
        thanks(w, z, y)
        w.say(f"Now {x.name} has the {o.name} and {z.name} has the {p.name}.")


def lost(w: World) -> None:
    x = child(w)
    y = friend(w, x)
    o = w.one(*[t for t in THINGS if t.kind in LENT])
    b, c = w.some(("in the bag", "under the bed", "on the desk", "behind the door", "in the box", "under the chair"), 2)
    w.say(
        f"{w.one(*TIMES)}, {x.name} could not find {his(x)} {o.name}.",
        f"{capital(he(x))} looked {b}, but it was not there.",
    )
    if w.chance(0.5):
        w.has(y, o)
        w.say(f"Then {y.name} came and said, “I found your {o.name} at {w.one(*PLACES)}.”")
        hand_over(w, y, o, x, "gave back")
        thanks(w, x, y)
    else:
        w.say(
            f"{y.name} helped {him(x)}. At last they found the {o.name} {c}.", f"{x.name} said, “Thank you, {y.name}!”"
        )
    w.say(
        w.one(
            f"{x.name} was very happy.",
            f"Now {x.name} always puts {his(x)} things away.",
            "Then they went out to play.",
        )
    )


def fable(w: World) -> None:
    x, y = w.some(ANIMALS, 2)
    o = w.one(*[t for t in THINGS if t.kind == "food"])
    bare = x.name.replace("the ", "")
    w.say(
        f"Once upon a time, there was a {bare} who lived {w.one('in the forest', 'by the river', 'under a big tree', 'on a hill')}."
    )
    w.has(x, o)
    w.say(
        f"One day, {x.name} found {a(w, o)}.",
        w.one(f"On the way home, {he(x)} met {y.name}.", f"Then {y.name} came by."),
    )
    w.say(
        capital(
            f"{y.name} said, “{w.one('I am so hungry.', 'I have not eaten all day.', 'What a lovely ' + o.name + '!')}”"
        )
    )
    hand_over(w, x, o, y)
    thanks(w, y, x)
    w.say(
        w.one(
            "From that day on, they were good friends.",
            "They lived happily ever after.",
            "Everybody in the forest was happy.",
        )
    )


def talk(w: World) -> None:
    x = child(w)
    y = friend(w, x)
    place = w.one(*PLACES)
    lines = [
        (f"{x.name} asked, “Where are you going?”", f"{y.name} said, “I am going to {place}.”"),
        (f"{x.name} asked, “What time is it?”", f"{y.name} said, “It is {w.one('seven', 'eight', 'nine', 'ten', 'two', 'three')} o'clock.”"),
        (f"{x.name} asked, “How is the weather today?”", f"{y.name} said, “It is {w.one('sunny', 'raining', 'cold', 'very hot', 'snowing')}.”"),
        (f"{x.name} asked, “What do you like to eat?”", f"{y.name} said, “I like {w.one(*LOVED.values())}.”"),
        (f"{x.name} asked, “What is your favorite color?”", f"{y.name} said, “My favorite color is {w.one('red', 'blue', 'green', 'yellow')}.”"),
        (f"{x.name} asked, “Are you all right?”", w.one(f"{y.name} said, “I am tired.” {x.name} said, “You should get some sleep.”", f"{y.name} said, “I am fine, thank you.”")),
        (f"{x.name} said, “Let us go to {place} tomorrow.”", w.one(f"{y.name} said, “That is a good idea.”", f"{y.name} said, “I am sorry, I have no time.”")),
        (f"{x.name} asked, “Why are you late?”", f"{y.name} said, “{w.one('Because I got up late', 'Because the bus was late', 'Because it was raining')}.”"),
    ]  # fmt: skip
    w.say(opening(w) + w.one(f"{x.name} met {y.name} at {place}.", f"{w.one(*TIMES)}, {x.name} called {y.name}."))
    for pair in w.some(lines, w.rng.randint(1, 3)):
        w.say(*pair)
    w.say(w.one(f"{x.name} said, “See you tomorrow!”", "They talked for a long time.", f"{y.name} said, “Goodbye!”"))


def outing(w: World) -> None:
    place = w.one(
        "the park", "the zoo", "the beach", "the library", "the market", "my grandmother's house", "the river"
    )
    who = w.one("my mother", "my father", "my friends", "my brother", "my sister", child(w).name)
    seen = {
        "the park": ("saw many flowers", "flew a kite", "fed the birds"), "the zoo": ("saw a big elephant", "saw the monkeys", "saw a sleeping bear"),
        "the beach": ("played in the sand", "swam in the sea", "found some shells"), "the library": ("read a book", "borrowed two books", "sat by the window"),
        "the market": ("bought some apples", "bought bread and milk", "saw many people"), "my grandmother's house": ("ate dinner", "played with the cat", "listened to a story"),
        "the river": ("caught a fish", "sat on the grass", "saw some ducks"),
    }[place]  # fmt: skip
    first, second = w.some(seen, 2)
    w.say(
        w.one(*WEATHER[:1], WEATHER[2], WEATHER[5]),
        f"I went to {place} with {who}.",
        w.one(f"We {first} and {second}.", f"First we {first}, and then we {second}."),
    )
    w.say(
        w.one(
            "We were tired but happy.",
            "We had a good time.",
            "Then we went home by bus.",
            "I want to go there again.",
            "It was a wonderful day.",
        )
    )


def counting(w: World) -> None:
    numbers = "zero one two three four five six seven eight nine ten".split()
    x = child(w)
    y = friend(w, x)
    plural = w.one(*LOVED.values(), "books", "pencils", "balls", "cards")
    have = w.rng.randint(3, 10)
    part = w.rng.randint(2, have - 1)
    rest = have - part
    w.say(f"{x.name} had {numbers[have]} {plural}.", f"{capital(he(x))} gave {numbers[part]} {plural} to {y.name}.")
    w.say(
        w.one(
            f"Now {x.name} has {numbers[rest]} left.",
            f"How many does {x.name} have now? {x.name} has {numbers[rest]}.",
            f"{capital(numbers[have])} minus {numbers[part]} is {numbers[rest]}.",
        )
    )


FACTS = (
    "The capital of France is Paris.", "The capital of China is Beijing.", "The capital of Japan is Tokyo.", "The capital of Germany is Berlin.",
    "The capital of Italy is Rome.", "The capital of England is London.", "There are seven days in a week.", "There are twelve months in a year.",
    "There are four seasons: spring, summer, autumn and winter.", "The sun rises in the east and sets in the west.", "The earth goes around the sun.",
    "Ice melts when it is warm.", "Birds can fly and fish can swim.", "Cats like fish and dogs like bones.", "Rabbits like carrots.", "Apples grow on trees.",
    "Bread is made from flour.", "Paper is made from wood.", "Milk comes from cows.", "Two plus two is four.", "A day has twenty-four hours.",
    "In winter it is cold and it sometimes snows.", "In spring the flowers bloom.", "In summer it is hot.", "In autumn the leaves fall.",
    "Plants need water and light.", "We wear coats because it is cold.", "We take an umbrella because it is raining.", "We sleep at night because we are tired.",
)  # fmt: skip


def facts(w: World) -> None:
    chosen = w.some(FACTS, w.rng.randint(2, 5))
    if w.chance(0.5):
        x = child(w)
        y = w.one(*GROWN_UPS, *PARENTS)
        w.say(
            f"{y.name} told {x.name}: “{' '.join(chosen)}”",
            w.one(f"{x.name} said, “Now I understand.”", f"{x.name} listened carefully."),
        )
    else:
        w.say(*chosen)


SCENES = ((passing_on, 40), (exchange, 8), (lost, 8), (fable, 9), (talk, 12), (outing, 9), (counting, 7), (facts, 3))

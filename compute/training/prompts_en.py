"""English prompts on which SmolLM2 writes what its draft learns from: questions, lists, rewriting, code, stories.

`prompt(n)` is a pure function of n. The prompts of data/speculation-prompts.toml are never among them.
"""

from __future__ import annotations

import random

from compute.facts import speculation_prompts
from compute.training import grammar

TARGET = "smollm2-135m"

SUBJECTS = """
gravity; photosynthesis; the water cycle; rainbows; thunder and lightning; volcanoes; earthquakes; the moon; the tides; the seasons; vitamins; the heart;
the lungs; the brain; bones and muscles; digestion; vaccines; bacteria; viruses; allergies; exercise; healthy eating; dreams; stress; the immune system;
electricity; magnets; batteries; solar panels; wind turbines; engines; bicycles; airplanes; ships; trains; bridges; skyscrapers; concrete; glass; paper;
plastic; recycling; climate change; forests; oceans; rivers; deserts; coral reefs; bees; butterflies; spiders; whales; dolphins; elephants; penguins;
owls; wolves; horses; cats; dogs; dinosaurs; fossils; evolution; DNA; cells; atoms; molecules; light; sound; heat; friction; energy; the solar system;
black holes; stars; comets; satellites; telescopes; microscopes; the printing press; the Roman Empire; ancient Egypt; the Middle Ages; the Renaissance;
the Industrial Revolution; democracy; elections; taxes; banks; money; credit cards; insurance; supply and demand; budgeting; saving money; investing;
advertising; small businesses; teamwork; leadership; good communication; public speaking; job interviews; time management; learning a language; reading books;
poetry; painting; photography; music; the piano; the guitar; opera; theatre; cinema; dance; chess; football; tennis; swimming; running; yoga; hiking; camping;
gardening; compost; cooking; bread; cheese; chocolate; coffee; tea; rice; potatoes; tomatoes; honey; salt; sugar; computers; the internet; email;
passwords; artificial intelligence; robots; search engines; video games; mobile phones; databases; programming; algorithms; sorting; binary numbers;
fractions; percentages; averages; probability; geometry; prime numbers; maps; compasses; calendars; clocks; weather forecasts; snow; fog; hurricanes;
friendship; honesty; patience; curiosity; kindness; good habits; homework; school uniforms; museums; zoos; markets; villages; big cities; public transport
"""
TOPICS = [t.strip() for t in SUBJECTS.replace("\n", " ").split(";")]

QUESTIONS = (
    "What is the most important thing to know about {t}?", "Explain {t} in simple words.", "Can you explain how {t} affects our daily life?",
    "Why does {t} matter?", "What should a beginner know about {t}?", "Tell me three interesting facts about {t}.", "Explain {t} to a ten-year-old.",
    "What are the advantages and disadvantages of {t}?", "What is the history of {t}?", "Describe {t} in one paragraph.", "How would you define {t}?",
    "What do people often get wrong about {t}?", "Write a short introduction to {t}.", "What is the difference between {t} and {u}?",
    "How is {t} connected with {u}?", "Compare {t} and {u}.", "Why do scientists study {t}?", "How do teachers explain {t} in school?",
    "What can we learn from {t}?", "Give a short summary of what is known about {t}.", "Why are some people interested in {t}?",
    "What questions should I ask an expert on {t}?", "Give an example that makes {t} easy to understand.", "How has {t} changed over the last hundred years?",
)  # fmt: skip
DIRECT = (
    "Why is the sky blue?", "Why do leaves change colour in autumn?", "How do birds fly?", "How does a microwave oven heat food?", "Why is the sea salty?",
    "How do fish breathe?", "Why do we yawn?", "How is paper made?", "How does soap clean our hands?", "Why do cats purr?", "How do magnets work?",
    "What causes the wind?", "How do plants drink water?", "Why do we have leap years?", "How does a vaccine protect us?", "How are mountains formed?",
    "What is a healthy breakfast?", "How can I sleep better?", "How do I make a good first impression?", "How can I learn to cook?", "What is the capital of {c}?",
    "What is {c} famous for?", "What is the weather like in {c}?", "Which food should I try in {c}?", "Tell me about the geography of {c}.",
    "What languages do people speak in {c}?", "What is {a} plus {b}?", "What is {a} times {b}? Explain step by step.", "How many minutes are there in {a} hours?",
    "If I buy {a} apples for {b} cents each, how much do I pay?", "A train travels {b} kilometres an hour. How far does it go in {a} hours?",
    "How do I convert {b} kilometres to miles?", "Who wrote Romeo and Juliet?", "Who was Isaac Newton?", "Who was Marie Curie?", "Who was Albert Einstein?",
    "Who was Leonardo da Vinci?", "Who invented the telephone?", "What is the largest ocean on Earth?", "What is the fastest animal on land?",
    "Hello! How are you today?", "What can you do?", "Can you help me with my homework about {t}?", "I am bored. What can I do this afternoon?",
    "I feel nervous before an exam. What should I do?", "How do I say thank you to a colleague?", "How do I keep my {o} in good condition?", "What is a {o} used for?",
)  # fmt: skip
COUNTRIES = (
    "France Italy Spain Germany Portugal Greece Norway Sweden Finland Poland Japan China India Brazil Mexico Canada Peru Chile Egypt Kenya Morocco Turkey "
    "Vietnam Thailand Australia Ireland Iceland Denmark Austria Hungary"
).split()
OBJECTS = "kettle bicycle raincoat backpack notebook lamp teapot hammer telescope camera violin umbrella blanket wallet ladder basket candle mirror garden suitcase".split()
LISTS = (
    "List five facts about {t}.", "Give me ten ideas for a school project about {t}.", "List the pros and cons of {t}.", "What are the main parts of {t}?",
    "Make a shopping list for {m}.", "List seven things that I need for {m}.", "Give five tips for {m}.", "Write a step-by-step guide to {m}.",
    "Give me a plan for one day in {c}.", "List eight words connected with {t} and explain each in a sentence.", "Make a checklist for {m}.",
    "What are the steps of {m}?", "Write a recipe for {f}.", "Give me the ingredients and the steps for {f}.", "Suggest six names for a {o} shop.",
    "Write a packing list for a trip to {c}.", "Make a table of three advantages and three disadvantages of {t}.", "Write three questions for a quiz about {t}.",
    "Make a weekly timetable for learning about {t}.", "Name ten animals and where they live.", "List the days of the week and one activity for each.",
)  # fmt: skip
MATTERS = (
    "a birthday party", "planting a vegetable garden", "moving to a new flat", "a picnic in the park", "painting a room", "cleaning a kitchen", "washing a car",
    "repairing a flat tyre", "learning to swim", "writing a letter", "preparing for an exam", "starting a book club", "training a puppy", "a job interview",
    "saving electricity at home", "making a sandwich", "baking bread", "brushing your teeth", "planning a holiday", "starting a small business",
    "organising a football match", "building a bird house", "giving a talk", "keeping a diary", "looking after a cat", "cooking dinner for friends",
)  # fmt: skip
FOODS = "pancakes; tomato soup; vegetable curry; apple pie; fried rice; chicken salad; banana bread; mashed potatoes; lemonade; chocolate cake; omelette; lentil soup; pizza; oat cookies".split("; ")
TASKS = (
    "adds two numbers", "reverses a string", "finds the largest number in a list", "checks whether a number is prime", "checks whether a word is a palindrome",
    "computes the factorial of a number", "returns the first n Fibonacci numbers", "sorts a list of names", "counts the words in a text",
    "removes duplicates from a list", "converts Celsius to Fahrenheit", "computes the average of a list", "reads a file and prints its lines", "sums the even numbers in a list",
    "finds the longest word in a sentence", "merges two dictionaries", "computes the area of a circle", "prints a multiplication table", "finds the smallest item in a list",
    "counts how often each letter occurs", "computes the greatest common divisor of two numbers", "checks whether a year is a leap year", "flattens a nested list",
    "generates a random password", "computes the nth power of a number", "splits a list into two halves", "searches a sorted list",
)  # fmt: skip
CODE = (
    "Write a Python function that {k}.", "Write a JavaScript function that {k}.", "Show me Python code that {k} and explain it.", "How do I write a program that {k}?",
    "Write a short Python script that {k}, with comments.", "Write a Java method that {k}.", "Write a Python function that {k}, and a test for it.",
)  # fmt: skip
PEOPLE = (
    "a young girl; an old fisherman; a shy boy; a tired nurse; a clever fox; a lost dog; two brothers; a retired teacher; a brave mouse; a lonely giant; a queen; "
    "a travelling musician; a farmer; a baker; a clockmaker; a young astronaut; a grandmother; a little dragon; a sailor; a painter; a postman; a curious cat; "
    "a gardener; three friends; a bus driver; a wise owl; a princess; a scientist; a small cloud; a snowman"
).split("; ")
PLOTS = (
    "finds an old map", "gets lost in the forest", "learns to share", "meets a talking bird", "wants to see the sea", "discovers a hidden door", "helps a stranger",
    "plants a magic seed", "loses a precious ring", "moves to a new town", "tells the truth at last", "builds a boat", "is afraid of the dark", "hears strange music at night",
    "travels through time", "makes an unusual friend", "saves the village", "wins a competition", "forgets an important promise", "finds a letter from the past",
    "climbs the highest mountain", "opens a small shop", "learns to play the drum", "brings back the rain", "spends a night in a museum",
)  # fmt: skip
STORIES = (
    "Write a short story about {p} who {s}.", "Tell me a story about {p} who {s}.", "Write a bedtime story in which {p} {s}.", "Write the beginning of a story: {p} {s}.",
    "Write a funny story about {p} who {s}.", "Write a story of about 150 words. {P} {s}.", "Write a poem about {t}.", "Write a short poem about {p} who {s}.",
    "Write a dialogue between {p} and {q}.", "Describe a day in the life of {p}.", "Write a letter from {p} to {q}.", "Invent a legend about how {p} {s}.",
)  # fmt: skip
REWRITES = (
    "Summarise this text in one sentence.", "Summarize the following paragraph.", "Rewrite this text in simpler words.", "Rewrite this paragraph in a formal style.",
    "Rewrite the text as if it happened tomorrow.", "What is this text about?", "List the people in this text.", "Write a title for this text and repeat the text below it.",
    "Correct any mistakes in this text.", "Rewrite this text in the first person.", "Make this text shorter.", "Copy this text exactly.", "Rewrite this as a list of short sentences.",
    "Change the names in this text.", "Paraphrase this paragraph.", "Who did what? Answer from the text.", "Rewrite this message so that it sounds friendly.",
    "Extract the key points from this text.", "Turn this text into a dialogue.", "Put this paragraph into the present tense.",
)  # fmt: skip
NAMES = "Anna Peter Maria Daniel Lucy Oliver Emma Jack Sofia Henry Alice Leo Nora Samuel Grace Victor Julia Ben Helen Arthur".split()
WHERE = (
    "in the small town of Ashford; near the river; at the edge of the forest; in a quiet street; on the third floor of an old house; next to the railway; "
    "in the middle of the city; by the sea; in the mountains; behind the school"
).split("; ")
WORK = (
    "repairs old radios; teaches mathematics; sells flowers; drives the night bus; bakes bread; writes for the local newspaper; works in a hospital; "
    "keeps twelve chickens; builds wooden chairs; runs a small library; studies medicine; takes photographs of birds"
).split("; ")
EVENTS = (
    "Last week the roof began to leak, and nobody could come before Friday.", "In the evening the neighbours meet in the kitchen and talk about the news.",
    "The work begins at six o'clock and ends long after sunset.", "Two years ago a storm destroyed the garden, but everything has grown again since.",
    "On Sundays the whole family walks to the lake and eats sandwiches there.", "The new manager wants to change the opening hours, and many people are against it.",
    "Most visitors come in summer, when the weather is warm and the days are long.", "There is not much money, so every chair has been repaired more than once.",
    "A letter from the council arrived on Tuesday and asked for a meeting.", "The children help after school and learn something new every day.",
    "In winter the road is closed for weeks, and the post comes by train.", "The price of electricity has doubled, so the lights go out at nine.",
    "An old friend from {c} visited in {y} and stayed for a month.", "The first customer was a woman who bought three books and a clock.",
    "Everybody remembers the summer of {y}, when the harvest was better than ever.", "The team lost the first two games and won the third.",
    "A small dog sleeps under the table and barks when the telephone rings.", "The plan is to open a second place in {c} next year.",
)  # fmt: skip


def paragraph(rng: random.Random) -> str:
    """Four or five sentences about somebody; sometimes a story of the course's grammar instead."""
    if rng.random() < 0.25:
        return next(iter(grammar.stories(grammar.english, rng.randrange(1 << 30), 200)))[:500]
    first, second = rng.sample(NAMES, 2)
    opening = f"{first} lives {rng.choice(WHERE)} and {rng.choice(WORK)}. {first}'s friend {second} {rng.choice(WORK)}."
    rest = " ".join(rng.sample(EVENTS, rng.randint(2, 3))).format(c=rng.choice(COUNTRIES), y=rng.randint(1950, 2020))
    return f"{opening} {rest}"


def prompt(n: int) -> str:
    """The n-th training prompt."""
    rng = random.Random(f"prompt {n}")
    kind = rng.choices(("question", "direct", "list", "code", "story", "rewrite"), (27, 13, 17, 8, 17, 18))[0]
    if kind == "rewrite":
        return f"{rng.choice(REWRITES)}\n\n{paragraph(rng)}"
    template = rng.choice({"question": QUESTIONS, "direct": DIRECT, "list": LISTS, "code": CODE, "story": STORIES}[kind])
    t, u = rng.sample(TOPICS, 2)
    p, q = rng.sample(PEOPLE, 2)
    return template.format(
        t=t, u=u, p=p, q=q, P=p.capitalize(), s=rng.choice(PLOTS), c=rng.choice(COUNTRIES), o=rng.choice(OBJECTS), m=rng.choice(MATTERS),
        f=rng.choice(FOODS), k=rng.choice(TASKS), a=rng.randint(2, 12), b=rng.randint(11, 90),
    )  # fmt: skip


def prompts(first: int, count: int) -> list[str]:
    """`count` different prompts from number `first` on, none of them one that is measured."""
    taken = {p.text for p in speculation_prompts(TARGET)}
    found: dict[str, None] = {}
    n = first
    while len(found) < count:
        text = prompt(n)
        if text not in taken:
            found[text] = None
        n += 1
    return list(found)

"""Sentences and scenes of the Chinese stories. A scene takes a `World`, says its sentences and keeps the books."""

from __future__ import annotations

from compute.training.grammar import Person, Thing, World
from compute.training.words_zh import (
    ANIMALS,
    BY_NAME,
    CHILDISH,
    CHILDREN,
    COLD,
    DAYTIME,
    EATEN,
    ELDERS,
    FABLE_THINGS,
    FACTS,
    FAMILY,
    FRIENDS,
    FRUIT,
    GROWN_UP,
    HOT,
    LENT,
    NEEDS,
    NEIGHBOURS,
    NIGHT,
    NUMBERS,
    PLACES,
    PRICES,
    SHARING,
    TEACHERS,
    THINGS,
    TIMES,
    TRAVEL,
    USES,
    WARM_WORDS,
    WEATHER,
    WHY,
)


def pronoun(person: Person) -> str:
    return "她" if person.female else "他"


def a(thing: Thing) -> str:
    return f"一{thing.measure}{thing.name}"


def a_fine(w: World, thing: Thing) -> str:
    return f"一{thing.measure}{w.one(*thing.looks)}{thing.name}" if w.chance(0.5) else a(thing)


def friend(w: World, child: Person, avoid: tuple[Person, ...] = ()) -> Person:
    """The best friend half of the time, else any other child."""
    best = BY_NAME.get(FRIENDS.get(child.name, ""))
    if best and best not in avoid and w.chance(0.55):
        return best
    return w.one(*[c for c in CHILDREN if c != child and c not in avoid])


def child(w: World) -> Person:
    """小明 more often than the others."""
    return BY_NAME["小明"] if w.chance(0.2) else w.one(*CHILDREN)


def receiver(w: World, giver: Person, main: Person, avoid: tuple[Person, ...] = ()) -> Person:
    """Mostly a friend; family only of the main child, because 妈妈 means that child's mother."""
    group = w.weighted([("friend", 7), ("family", 1.2), ("teacher", 0.9), ("neighbour", 0.5)])
    if group == "friend":
        return friend(w, giver, (*avoid, main) if giver != main and w.chance(0.7) else avoid)
    pool = {"family": FAMILY if giver == main else TEACHERS, "teacher": TEACHERS, "neighbour": NEIGHBOURS}[group]
    pool = [p for p in pool if p != giver and p not in avoid]
    return w.one(*pool)


def opening(w: World) -> str:
    """A clause of time and weather that ends with a comma or a full stop."""
    time = w.one(*TIMES)
    if w.chance(0.45):
        return f"{time}，{w.one(*weather(time))}{w.one('。', '，')}"
    return f"{time}，"


def weather(time: str) -> tuple[str, ...]:
    """Weather that can go with a time: no snow in summer, no sun at night."""
    if "冬" in time or "过年" in time:
        return COLD
    if "晚" in time:
        return NIGHT
    return HOT if "夏" in time else WEATHER


def thanks(w: World, receiver: Person, giver: Person) -> None:
    """The receiver thanks the giver; sometimes an answer."""
    polite = giver.name in GROWN_UP
    you = "您" if polite else "你"
    w.say(
        w.weighted(
            [
                (f"{receiver.name}说：“谢谢{you}，{giver.name}！”", 4),
                (f"{receiver.name}说：“谢谢{giver.name}！”", 2),
                (f"{receiver.name}高兴地说：“谢谢{you}！”", 2),
                (f"{receiver.name}连忙说：“太谢谢{you}了！”", 1),
                (f"{receiver.name}笑着对{giver.name}说：“谢谢。”", 1),
                (f"{receiver.name}非常感谢{giver.name}。", 1),
            ]
        )
    )
    if w.chance(0.35):
        w.say(
            w.one(
                f"{giver.name}说：“不客气。”", f"{giver.name}笑着说：“不用谢。”", f"{giver.name}说：“别客气，我们是朋友。”"
                if not polite and receiver.name not in GROWN_UP else f"{giver.name}说：“不用客气。”",
                f"{giver.name}摇摇头说：“没什么。”",
            )
        )  # fmt: skip


def ask(w: World, wanter: Person, holder: Person, thing: Thing, lend: bool) -> None:
    you = "您" if holder.name in GROWN_UP else "你"
    want = (
        w.one("可以借我用一下吗", "能借给我吗", f"能把{thing.name}借给我吗", f"可以把{thing.name}借给我用一下吗")
        if lend
        else w.one("可以给我吗", f"能把{thing.name}给我吗", f"我可以要这{thing.measure}{thing.name}吗", "能给我尝尝吗")
        if thing.kind in EATEN
        else w.one("可以给我吗", f"能把{thing.name}给我吗", f"我可以要这{thing.measure}{thing.name}吗")
    )
    w.say(f"{wanter.name}{w.one('问', '说', '走过来问', '小声地问', f'问{holder.name}')}：“{holder.name}，{you}的{thing.name}{want}？”"
          if "把" not in want and "我可以" not in want
          else f"{wanter.name}{w.one('问', '说', '走过来问', '小声地问', f'问{holder.name}')}：“{holder.name}，{want}？”")  # fmt: skip
    w.say(
        f"{holder.name}{w.one('说', '点点头说', '笑着说', '想了想，说')}：“{w.one('好啊', '当然可以', '可以', '没问题', '好的', '给你吧', '拿去吧')}{w.one('。', '！')}”"
    )


def hand_over(w: World, x: Person, o: Thing, y: Person, verb: str = "给", because: str = "") -> None:
    """One sentence in which x hands o to y. `verb`: 给, 借给, 还给 …; `because`: a clause about y."""
    w.hand(x, o, y)
    that = f"那{o.measure}" if w.chance(0.2) else ""
    if because:
        plain = f"{x.name}把{that}{o.name}{verb}了{y.name}。"
        pro = f"{x.name}就把{that}{o.name}{verb}了{pronoun(y)}。"
        named_y = because.startswith(y.name) and because.count("，") == 0
        w.say(
            w.weighted(
                [
                    (f"{because}，{pro}" if named_y else f"{because}，于是{plain}", 3),
                    (f"因为{because}，所以{plain}", 3),
                    (f"{because}。{plain}", 3),
                    (f"{x.name}看见{because}，就把{o.name}{verb}了{pronoun(y) if named_y else y.name}。" if because.startswith(y.name) else f"{because}。{plain}", 2),
                    (f"{x.name}把{o.name}{verb}了{y.name}，因为{because}。", 1),
                ]
            )
        )  # fmt: skip
        return
    verbs = [(verb, 6)]
    if verb == "给":
        verbs += [("递给", 2), ("交给", 1)] + ([("送给", 2)] if o.kind in ("gift", "book", "toy", "fruit") else [])
    done = w.weighted(verbs)
    if not w.lines:
        w.say(f"{x.name}把{that}{o.name}{done}了{y.name}。")
        return
    w.say(
        w.weighted(
            [
                (f"{x.name}把{that}{o.name}{done}了{y.name}。", 9),
                (f"于是{x.name}把{that}{o.name}{done}了{y.name}。", 1.5),
                (f"{x.name}想了想，把{o.name}{done}了{y.name}。", 1),
                (f"{x.name}笑着把{o.name}{done}了{y.name}。", 1),
                (f"{x.name}拿出{o.name}，{done}了{y.name}。", 1),
                (f"后来，{x.name}把{that}{o.name}{done}了{y.name}。", 1),
                (f"{x.name}马上把{o.name}{done}了{y.name}。", 1),
            ]
        )
    )


def who_has(w: World, thing: Thing, holder: Person, mention: str = "现在") -> None:
    """A statement, or a question with its answer, about where the thing is."""
    o, y = thing.name, holder.name
    w.say(
        w.one(
            f"{mention}，{o}在{y}手里。", f"{o}现在在{y}那里。", f"最后，{o}到了{y}的手里。", f"{mention}，{y}有{a(thing)}。",
            f"{mention}{o}在谁那里？{o}在{y}那里。", f"{mention}谁有{o}？{y}有{o}。", f"请问，{o}在谁手里？在{y}手里。",
            f"所以，{o}现在是{y}的。" if thing.kind in EATEN else f"{mention}，{o}在{y}那里。",
        )
    )  # fmt: skip


def gets(w: World, x: Person, o: Thing, main: Person) -> None:
    """How x comes to have o."""
    lead = opening(w) if w.chance(0.65) else ""
    if x == main and w.chance(0.3):
        elder = w.one(*ELDERS)
        w.hand(elder, o, x)
        w.say(lead + w.one(f"{elder.name}给了{x.name}{a_fine(w, o)}。", f"{elder.name}给{x.name}买了{a_fine(w, o)}，交给了{x.name}。",
                           f"{elder.name}把{a_fine(w, o)}给了{x.name}。"))  # fmt: skip
        return
    w.has(x, o)
    shop = {"book": "书店", "pen": "文具店", "toy": "玩具店"}.get(o.kind, w.one("超市", "商店", "市场"))
    w.say(
        lead
        + w.weighted(
            [
                (f"{x.name}有{a_fine(w, o)}。", 4),
                (f"{x.name}在{shop}买了{a_fine(w, o)}。", 2),
                (f"{x.name}带来了{a_fine(w, o)}。", 2),
                (f"{x.name}带着{a_fine(w, o)}来到{w.one(*PLACES)}。", 2),
                (f"{x.name}手里拿着{a_fine(w, o)}。", 2),
                (f"{x.name}去{w.one(*PLACES)}，带了{a_fine(w, o)}。", 1),
                (f"{x.name}的桌子上有{a_fine(w, o)}。", 1),
            ]
        )
    )


def need_of(w: World, thing: Thing, wanter: Person) -> str:
    needs = [n for n in NEEDS[thing.kind] if wanter.name not in GROWN_UP or not any(c in n for c in CHILDISH)]
    return w.one(*needs).format(y=wanter.name, o=thing.name)


def uses(w: World, thing: Thing, holder: Person, may_finish: bool) -> bool:
    """The holder does something with it. True when nothing is left."""
    options = [u for u in USES[thing.kind] if may_finish or not u[1]]
    if holder.name in GROWN_UP:
        options = [u for u in options if not any(c in u[0] for c in CHILDISH)]
    if not options:
        return False
    sentence, used_up = w.one(*options)
    w.say(sentence.format(y=holder.name, o=thing.name))
    if used_up:
        w.use_up(thing)
    return used_up


# --- scenes ---------------------------------------------------------------------------------------------------------


def a_thing(w: World) -> Thing:
    return THINGS[0] if w.chance(0.12) else w.one(*FRUIT) if w.chance(0.15) else w.one(*THINGS)


def passing_on(w: World) -> None:
    """A thing goes from hand to hand: given, lent and returned, or eaten at the end."""
    main = child(w)
    o = a_thing(w)
    x = main
    direct = w.chance(0.3)
    if direct:
        w.has(x, o)
    else:
        gets(w, x, o, main)
    visited = [x]
    for turn in range(w.weighted([(1, 5), (2, 4), (3, 2)])):
        y = receiver(w, x, main, tuple(visited)) if turn else receiver(w, x, main)
        if turn and x in FAMILY:
            break  # who would call somebody else's mother 妈妈?
        if turn:
            w.say(w.one("", "后来，", "过了一会儿，", "第二天，", "然后，", "没过多久，") + w.one(
                f"{x.name}遇到了{y.name}。", f"{y.name}来了。", f"{y.name}走了过来。", f"{x.name}去找{y.name}。",
                f"{x.name}在{w.one(*PLACES)}看见了{y.name}。"))  # fmt: skip
        elif not direct and w.chance(0.35):
            w.say(w.one(f"{x.name}看见了{y.name}。", f"{y.name}正好走过来。", f"{x.name}去找{y.name}。",
                        f"{x.name}和{y.name}一起来到{w.one(*PLACES)}。", f"这时候，{y.name}来了。"))  # fmt: skip
        lend = o.kind in LENT and not turn and w.chance(0.35) and not (direct and w.chance(0.5))
        style = w.weighted([("plain", 5), ("because", 3), ("asked", 2)])
        verb = "借给" if lend else "给"
        if style == "asked":
            if w.chance(0.6):
                w.say(need_of(w, o, y) + "。")
            ask(w, y, x, o, lend)
        hand_over(w, x, o, y, verb, need_of(w, o, y) if style == "because" else "")
        if w.chance(0.6):
            thanks(w, y, x)
        if lend:
            uses(w, o, y, False)
            if w.chance(0.75):
                w.say(w.one("第二天，", "用完以后，", "过了几天，", "下午，", "放学的时候，"))
                hand_over(w, y, o, x, "还给")
                if w.chance(0.4):
                    thanks(w, y, x)
                if w.chance(0.6):
                    who_has(w, o, x)
                break
            x = y
            break
        visited.append(y)
        x = y
    if (
        not w.lines[-1].startswith(("现在", "最后", "请问", "所以"))
        and o.name in w.holders
        and not (o.kind in LENT and "借给" in "".join(w.lines))
    ):
        if w.chance(0.65) and uses(w, o, x, True):
            if w.chance(0.2):
                w.say(w.one(f"谁{'喝' if o.kind == 'drink' else '吃'}了{o.name}？是{x.name}。", f"{o.name}没有了。"))
        elif w.chance(0.65):
            who_has(w, o, x)
    if w.chance(0.3):
        w.say(
            w.one(
                *(WARM_WORDS if x in CHILDREN and main in CHILDREN and x != main else WARM_WORDS[2:4] + WARM_WORDS[6:])
            )
        )
    elif w.chance(0.15):
        w.say("借了东西一定要还。" if "还给" in "".join(w.lines) else w.one(*SHARING))


def exchange(w: World) -> None:
    """Two people, two things; one or both change hands."""
    x = child(w)
    y = friend(w, x)
    o, p = w.some(THINGS, 2)
    w.has(x, o)
    w.has(y, p)
    w.say((opening(w) if w.chance(0.5) else "") + w.one(
        f"{x.name}有{a_fine(w, o)}，{y.name}有{a_fine(w, p)}。", f"{x.name}带了{a_fine(w, o)}，{y.name}带了{a_fine(w, p)}。",
        f"{x.name}手里拿着{a(o)}，{y.name}手里拿着{a(p)}。"))  # fmt: skip
    if w.chance(0.5):
        w.say(
            w.one(
                f"{x.name}很喜欢{y.name}的{p.name}。",
                f"{y.name}说：“我们交换，好吗？”",
                f"{x.name}说：“我想和你交换。”",
                "他们想交换一下。",
            )
        )
        hand_over(w, x, o, y)
        w.hand(y, p, x)
        w.say(w.one(f"{y.name}也把{p.name}给了{x.name}。", f"{y.name}把{p.name}给了{x.name}。"))
        ends = [(o, y), (p, x)]
    elif w.chance(0.5):
        hand_over(w, x, o, y)
        if w.chance(0.5):
            thanks(w, y, x)
        ends = [(o, y), (p, y)]
    else:
        z = friend(w, y, (x,))
        w.say(w.one("后来，", "这时候，", "过了一会儿，") + f"{z.name}来了。")
        hand_over(w, y, p, z)
        ends = [(o, x), (p, z)]
    w.rng.shuffle(ends)
    if w.chance(0.7):
        (s, sh), (t, th) = ends
        if sh == th:
            w.say(w.one(f"现在，{sh.name}有{s.name}和{t.name}。", f"现在，{s.name}和{t.name}都在{sh.name}那里。"))
        else:
            w.say(w.one(f"现在，{s.name}在{sh.name}那里，{t.name}在{th.name}那里。", f"现在，{sh.name}有{s.name}，{th.name}有{t.name}。",
                        f"谁有{s.name}？{sh.name}有{s.name}。谁有{t.name}？{th.name}有{t.name}。"))  # fmt: skip
    if w.chance(0.4):
        w.say(w.one(*WARM_WORDS))


def lost_and_found(w: World) -> None:
    """Somebody misses a thing, looks for it, and it comes back."""
    x = child(w)
    o = w.one(*[t for t in THINGS if t.kind not in EATEN and t.kind != "gift"])
    y = friend(w, x)
    w.say(
        opening(w)
        + w.one(f"{x.name}发现自己的{o.name}不见了。", f"{x.name}的{o.name}丢了。", f"{x.name}到处找自己的{o.name}。")
    )
    w.say(w.one(f"{pronoun(x)}很着急。", f"{x.name}急得快哭了。", f"{pronoun(x)}心里很难过。", ""))
    spots = w.some(("书包里", "桌子下面", "床底下", "教室里", "抽屉里", "沙发后面", "柜子里", "门后面", "窗台上"), 3)
    w.say(f"{x.name}先找了{spots[0]}，{w.one('没有', '没找到')}；又找了{spots[1]}，{w.one('还是没有', '也没有')}。")
    if w.chance(0.55):
        w.has(y, o)
        found = w.one("操场上", "路上", "教室门口", "楼梯上", "公园里", "车站", "草地上", "树下")
        w.say(w.one(f"这时候，{y.name}走过来说：“这是你的{o.name}吗？我在{found}看到的。”",
                    f"{y.name}问：“你在找什么？”{x.name}说：“我在找我的{o.name}。”{y.name}说：“我在{found}捡到了{a(o)}。”"))  # fmt: skip
        hand_over(w, y, o, x, w.one("还给", "给"))
        thanks(w, x, y)
    else:
        w.has(x, o)
        helper = w.one(y, w.one(*ELDERS))
        w.say(
            w.one(
                f"{helper.name}问：“怎么了？”{x.name}说：“我的{o.name}不见了。”",
                f"{helper.name}说：“别着急，我帮你找。”",
            )
        )
        w.say(
            w.one(
                f"最后，他们在{spots[2]}找到了{o.name}。",
                f"原来，{o.name}就在{spots[2]}。",
                f"{helper.name}说：“你看，{o.name}在{spots[2]}呢！”",
            )
        )
    w.say(
        w.one(
            f"{x.name}高兴极了。",
            f"{x.name}终于放心了。",
            f"{x.name}说：“下次我一定要把东西放好。”",
            f"从此以后，{x.name}再也不乱放东西了。",
        )
    )


def shopping(w: World) -> None:
    """Money, a price, and change that adds up."""
    x = child(w)
    who = w.one(x.name, f"{x.name}和{w.one(*ELDERS).name}", f"{w.one(*ELDERS).name}")
    o, p = w.some([t for t in THINGS if t.kind in PRICES], 2)
    shop = w.one("超市", "商店", "市场")
    w.say(opening(w) + f"{who}{w.one('去', '来到', '走进')}{shop}{w.one('买东西', '，想买' + a(o), '')}。")
    price = w.rng.randint(*PRICES[o.kind])
    paid = w.one(*[m for m in (5, 10, 20, 50, 100) if m >= price])
    w.say(w.one(f"{o.name}多少钱一{o.measure}？", f"{who}问：“请问，{o.name}多少钱？”", f"{who}看中了{a_fine(w, o)}。"))
    w.say(w.one(f"售货员说：“{price}块钱一{o.measure}。”", f"老板说：“一{o.measure}{price}块钱。”"))
    if w.chance(0.2):
        w.say(
            w.one("“太贵了，能便宜一点吗？”", f"{who}说：“有点贵。”")
            + w.one(f"最后，{who}买了{a(p)}。", f"{who}没有买{o.name}，买了{a(p)}。")
        )
    else:
        rest = f"，找回{paid - price}块钱" if paid > price else "，正好"
        w.say(w.one(f"{who}给了{paid}块钱{rest}。", f"{who}买了一{o.measure}，付了{paid}块钱{rest}。"))
    w.say(
        w.one(
            f"{who}高兴地回家了。",
            f"然后，{who}又买了{a(p)}。",
            "回到家，天已经黑了。",
            f"{w.one(*ELDERS).name}说：“你买的{o.name}真好。”" if who == x.name else "",
        )
    )


def counting(w: World) -> None:
    """Small sums about things, all of them true."""
    x = child(w)
    y = friend(w, x)
    o = w.one(*[t for t in THINGS if t.kind in ("fruit", "snack", "pen", "book", "toy")])
    have = w.rng.randint(2, 10)
    if w.chance(0.6):
        part = w.rng.randint(1, have - 1)
        other = w.rng.randint(1, 6)
        w.say(
            f"{x.name}有{NUMBERS[have]}{o.measure}{o.name}，{y.name}有{NUMBERS[other]}{o.measure}。"
            if w.chance(0.3)
            else f"{x.name}有{NUMBERS[have]}{o.measure}{o.name}。"
        )
        with_other = w.lines[-1].count(y.name) > 0
        w.say(
            w.one(
                f"{pronoun(x)}给了{y.name}{NUMBERS[part]}{o.measure}，",
                f"{x.name}把{NUMBERS[part]}{o.measure}给了{y.name}，",
            )
        )
        w.say(w.one(f"还剩{NUMBERS[have - part]}{o.measure}。", f"自己还有{NUMBERS[have - part]}{o.measure}。"))
        if with_other:
            w.say(f"现在，{y.name}有{NUMBERS[other + part]}{o.measure}{o.name}。")
        elif w.chance(0.4):
            w.say(
                w.one(
                    f"{x.name}还有几{o.measure}{o.name}？还有{NUMBERS[have - part]}{o.measure}。",
                    f"{NUMBERS[have]}减{NUMBERS[part]}等于{NUMBERS[have - part]}。".replace("两", "二"),
                )
            )
    else:
        more = w.rng.randint(1, 10)
        w.say(
            f"{x.name}有{NUMBERS[have]}{o.measure}{o.name}，{w.one(*ELDERS).name}又给了{pronoun(x)}{NUMBERS[more]}{o.measure}。"
        )
        w.say(w.one(f"现在{x.name}一共有{NUMBERS[have + more]}{o.measure}{o.name}。", f"一共有多少{o.measure}{o.name}？一共有{NUMBERS[have + more]}{o.measure}。",
                    f"{NUMBERS[have]}加{NUMBERS[more]}等于{NUMBERS[have + more]}。".replace("两", "二")))  # fmt: skip
    if w.chance(0.3):
        w.say(w.one(f"{w.one(*TEACHERS).name}说：“算对了，真棒！”", f"{x.name}很喜欢数学。", "大家都算对了。"))


def rain(w: World) -> None:
    """Weather changes a plan."""
    x = child(w)
    y = friend(w, x)
    place = w.one("公园", "河边", "山上", "海边", "动物园", "操场")
    plan = w.one("放风筝", "踢足球", "野餐", "爬山", "跑步", "看花", "画画", "骑自行车")
    w.say(f"{w.one(*DAYTIME)}，{x.name}和{y.name}{w.one('打算', '想', '准备', '约好')}去{place}{plan}。")
    bad = w.one("下起了大雨", "刮起了大风", "下起了大雪", "打起了雷")
    if w.chance(0.6):
        w.say(w.one(f"可是，天突然{bad}。", f"没想到，外面{bad}。", f"他们刚出门，就{bad}。"))
        w.say(
            w.one(
                f"{x.name}说：“怎么办呢？”",
                f"{x.name}有点失望。",
                f"因为{bad}，所以他们不能去{place}了。",
                f"他们只好{w.one('回家', '躲在屋檐下', '改天再去')}。",
            )
        )
        if w.chance(0.5):
            w.say(
                f"{y.name}说：“没关系，我们可以在家里{w.one('看书', '下棋', '画画', '听音乐', '做蛋糕', '讲故事')}。”"
            )
            w.say(
                w.one("他们在家里玩得也很开心。", f"第二天天气好了，他们终于去了{place}。", "外面很冷，家里却很温暖。")
            )
        else:
            w.say(f"{y.name}说：“我们等一等吧，{w.one('天气会好的', '一会儿就会好的')}。”")
            w.say(w.one("过了一会儿，太阳出来了，天上有一道彩虹。", "后来天晴了，他们又高高兴兴地出门了。"))
    else:
        w.say(w.one("那天天气特别好。", "太阳暖洋洋的，风也不大。", "天很蓝，云很白。"))
        w.say(
            w.one(
                f"他们{w.one(*TRAVEL)}去{place}，路上唱着歌。",
                f"他们先{w.one(*TRAVEL[:4])}，再走一段路，就到了{place}。",
            )
        )
        w.say(
            w.one(
                "他们玩了一个上午，又累又开心。",
                f"{x.name}看见了很多花，{y.name}看见了一只小鸟。",
                "中午，他们在树下吃面包，喝果汁。",
                f"{y.name}说：“这里真美啊！”",
            )
        )
        w.say(w.one("太阳下山了，他们才回家。", "回家的路上，大家都睡着了。", "他们说好下个星期再来。"))


def birthday(w: World) -> None:
    x = child(w)
    y = friend(w, x)
    z = friend(w, x, (y,))
    gift = w.one(*[t for t in THINGS if t.kind in ("book", "pen", "toy", "warm", "gift")])
    gift2 = w.one(*[t for t in THINGS if t.kind in ("book", "pen", "toy", "warm", "gift") and t != gift])
    age = NUMBERS[w.rng.randint(6, 12)]
    w.say(w.one(f"今天是{x.name}的生日。", f"{w.one(*TIMES)}，{x.name}过生日。", f"{x.name}今天{age}岁了。"))
    w.say(
        w.one(
            f"{w.one(*ELDERS).name}做了一个大蛋糕。",
            f"{pronoun(x)}请朋友们到家里来。",
            "家里来了很多人。",
            f"{y.name}和{z.name}都来了。",
        )
    )
    w.has(y, gift)
    w.has(z, gift2)
    w.say(w.one(f"{y.name}带来了{a_fine(w, gift)}。", f"{y.name}准备了{a_fine(w, gift)}。"))
    hand_over(w, y, gift, x, w.one("给", "送给"))
    if w.chance(0.6):
        w.say(f"{z.name}也有礼物，是{a_fine(w, gift2)}。")
        hand_over(w, z, gift2, x, w.one("给", "送给"))
    w.say(f"{x.name}说：“{w.one('谢谢你们', '谢谢大家', '我太高兴了，谢谢')}！”")
    w.say(
        w.one(
            "大家一起唱生日歌，吃蛋糕。",
            f"{x.name}吹灭了蜡烛，许了一个愿望。",
            "大家一边吃蛋糕，一边聊天。",
            f"大家说：“{x.name}，生日快乐！”",
        )
    )
    if w.chance(0.4):
        who_has(w, gift, x)


def fable(w: World) -> None:
    """Animals in the wood."""
    x, y, z = w.some(ANIMALS, 3)
    o = w.one(*FABLE_THINGS)
    home = w.one("森林里", "小河边", "大山里", "草地上", "一棵大树下")
    w.say(w.one(f"从前，{home}住着一只{x.name}。", f"从前，有一只{x.name}，住在{home}。", f"{home}，{x.name}和{y.name}是好朋友。", f"很久以前，{home}有一只{w.one('聪明', '善良', '勇敢', '懒惰', '可爱', '胆小')}的{x.name}。")
          .replace("一只小象", "一头小象").replace("一只小鹿", "一头小鹿"))  # fmt: skip
    w.has(x, o)
    w.say(
        w.one("有一天，", "一天早上，", "秋天到了，", "冬天来了，", "春天来了，")
        + w.one(
            f"{x.name}找到了{a_fine(w, o)}。", f"{x.name}带着{a_fine(w, o)}出门了。", f"{x.name}得到了{a_fine(w, o)}。"
        )
    )
    w.say(
        w.one(
            f"路上，{pronoun(x)}遇到了{y.name}。",
            f"{y.name}走过来，问：“{x.name}，你要去哪里？”",
            f"这时候，{pronoun(x)}听见有人在哭，原来是{y.name}。",
        )
    )
    if w.chance(0.75):
        w.say(
            w.one(
                f"{y.name}说：“我好饿，一天没吃东西了。”",
                f"{y.name}说：“我的{o.name}被大风吹走了。”",
                f"{y.name}说：“我从来没见过这么好的{o.name}。”",
                f"{y.name}生病了，不能出门。",
            )
        )
        hand_over(w, x, o, y)
        thanks(w, y, x)
        if w.chance(0.4):
            w.say(w.one(f"{y.name}正要走，看见{z.name}也饿着肚子。", f"{y.name}回到家，看见了{z.name}。"))
            hand_over(w, y, o, z)
            thanks(w, z, y)
            if w.chance(0.5):
                who_has(w, o, z)
        elif w.chance(0.4):
            who_has(w, o, y)
        w.say(
            w.one(
                "后来，" + f"{x.name}掉进了水里，{y.name}马上跑来救{pronoun(x)}。",
                f"从那天起，{x.name}和{y.name}成了好朋友。",
                "森林里的动物们都夸奖他们。",
                "大家快乐地生活在一起。",
            )
        )
    else:
        w.say(
            w.one(
                f"{y.name}说：“分我一半，好吗？”{x.name}说：“不行，这是我的。”{y.name}难过地走了。",
                f"{x.name}不想把{o.name}分给{y.name}。",
            )
        )
        w.say(
            w.one(
                f"晚上，{x.name}一个人吃{o.name}，觉得一点也不快乐。",
                f"过了几天，{x.name}没有吃的了，{y.name}却来看{pronoun(x)}。",
            )
        )
        w.say(f"{x.name}脸红了，说：“对不起，我错了。”{y.name}说：“没关系。”")
    if w.chance(0.4):
        w.say("这个故事告诉我们：" + w.one(*SHARING))


def conversation(w: World) -> None:
    """Two people talk; each answer fits its question."""
    x = child(w)
    y = friend(w, x)
    n = x.name, y.name
    if w.chance(0.4):
        w.say(
            opening(w)
            + w.one(f"{n[0]}给{n[1]}打电话。", f"{n[0]}在{w.one(*PLACES)}遇到了{n[1]}。", f"{n[0]}和{n[1]}在聊天。")
        )
    place = w.one(*PLACES)
    purpose = {
        "图书馆": "借书", "超市": "买菜", "商店": "买东西", "学校": "上课", "教室": "做作业", "公园": "散步", "操场": "跑步", "河边": "钓鱼",
        "车站": "接人", "山上": "看日出", "海边": "游泳", "饭店": "吃饭", "电影院": "看电影", "博物馆": "看展览", "动物园": "看大熊猫",
        "火车站": "坐火车", "医院": "看医生", "花园": "看花", "广场": "跳舞", "村子": "看奶奶", "院子": "浇花", "家门口": "等妈妈",
    }[place]  # fmt: skip
    day, hour = (
        w.one("明天", "后天", "星期六", "星期天", "今天晚上"),
        w.one("八点", "九点", "十点", "两点", "三点半", "七点"),
    )
    outing = w.one(
        "公园散步", "电影院看电影", "图书馆借书", "动物园看大熊猫", "河边钓鱼", "超市买东西", "操场踢球", "山上看日出"
    )
    food = w.one("面条", "饺子", "米饭", "包子", "鱼", "炒鸡蛋", "面包", "火锅")
    exchanges = [
        lambda: (f"{n[0]}问：“{n[1]}，你要去哪里？”", f"{n[1]}说：“我要去{place}{purpose}。”"),
        lambda: (f"{n[0]}问：“你吃饭了吗？”", w.one(f"{n[1]}说：“吃了，我吃了{food}。”", f"{n[1]}说：“还没有，我想吃{food}。”")),
        lambda: (f"{n[0]}说：“{day}我们一起去{outing}，好吗？”", w.one(f"{n[1]}说：“好啊，几点见面？”{n[0]}说：“{hour}，在{w.one('学校门口', '车站', '你家门口')}见。”", f"{n[1]}说：“对不起，我{day}没有时间。”", f"{n[1]}说：“太好了，我很想去。”")),
        lambda: (f"{n[0]}问：“今天天气怎么样？”", f"{n[1]}说：“今天{w.one('是晴天，很暖和', '下雨，出门要带伞', '有点冷，要多穿衣服', '很热，要多喝水', '刮大风，不要放风筝')}。”"),
        lambda: (f"{n[0]}问：“你最喜欢{w.one('什么颜色', '什么颜色呢')}？”", f"{n[1]}说：“我最喜欢{w.one('红色', '蓝色', '绿色', '黄色', '白色')}。”"),
        lambda: (f"{n[0]}问：“你喜欢吃什么水果？”", f"{n[1]}说：“我喜欢吃{w.one(*FRUIT).name}，因为{w.one('很甜', '好吃', '对身体好')}。”"),
        lambda: (f"{n[0]}问：“现在几点了？”", f"{n[1]}看了看手表，说：“{hour}了。”"),
        lambda: (f"{n[0]}问：“你怎么了？”", w.one(f"{n[1]}说：“我有点不舒服，头疼。”{n[0]}说：“你快去医院看医生吧。”", f"{n[1]}说：“我没考好，心里很难过。”{n[0]}说：“别难过，下次努力就好。”", f"{n[1]}说：“我太累了，想休息一下。”{n[0]}说：“那你早点睡觉吧。”")),
        lambda: (f"{n[0]}问：“你会{w.one('游泳', '骑自行车', '下棋', '做饭', '弹钢琴')}吗？”", w.one(f"{n[1]}说：“会，是爸爸教我的。”", f"{n[1]}说：“不会，我正在学。”", f"{n[1]}说：“会一点。”")),
        lambda: (f"{n[0]}问：“你怎么去{place}？”", f"{n[1]}说：“我{w.one(*TRAVEL)}去，{w.one('很方便', '不太远', '要半个小时', '只要十分钟')}。”"),
        lambda: (f"{n[0]}问：“你家有几口人？”", f"{n[1]}说：“我家有{w.one('三口人，爸爸、妈妈和我', '四口人，爸爸、妈妈、弟弟和我', '五口人，爷爷、奶奶、爸爸、妈妈和我')}。”"),
        lambda: (f"{n[0]}问：“请问，{place}怎么走？”", f"{n[1]}说：“一直往前走，到了路口往{w.one('左', '右')}拐，就到了。”"),
    ]  # fmt: skip
    for talk in w.some(exchanges, w.rng.randint(1, 3)):
        w.say(*talk())
    w.say(
        w.one(
            f"{n[0]}说：“好的，再见！”",
            f"{n[0]}说：“我知道了，谢谢你。”",
            "他们一边走一边聊，很开心。",
            f"{n[1]}说：“再见！”",
            "",
        )
    )


def diary(w: World) -> None:
    """A day told by its writer, in order."""
    who = w.one("爸爸", "妈妈", "爷爷", "奶奶", "爸爸妈妈", "同学们", child(w).name)
    place = w.one("公园", "动物园", "海边", "山上", "图书馆", "电影院", "博物馆", "乡下", "奶奶家", "超市", "河边")
    w.say(
        f"{w.one('今天', '星期天', '星期六', '昨天', '今天是星期天', '放假了')}，{w.one(*WEATHER)}。我和{who}{w.one(*TRAVEL[:5])}去{place}{w.one('玩', '')}。"
    )
    seen = {
        "公园": ("看见很多花", "在草地上放风筝", "坐了小船", "喂了鸽子"), "动物园": ("看见了大象", "看见了猴子吃香蕉", "看见大熊猫在睡觉", "看见老虎，有点害怕"),
        "海边": ("在沙滩上捡贝壳", "看见了蓝蓝的大海", "玩沙子", "看见很多小船"), "山上": ("看见了美丽的风景", "爬了两个小时", "在山顶吃午饭", "看见了云"),
        "图书馆": ("看了一本故事书", "借了两本书", "安静地看书"), "电影院": ("看了一部有趣的电影", "吃了爆米花", "看得哈哈大笑"),
        "博物馆": ("看见了很古老的东西", "学到了很多知识", "看见了恐龙的骨头"), "乡下": ("看见了小鸡和小鸭", "帮忙摘苹果", "在田里跑来跑去"),
        "奶奶家": ("吃了奶奶包的饺子", "和小猫玩", "听奶奶讲故事"), "超市": ("买了牛奶和面包", "买了很多水果", "帮忙推车"), "河边": ("钓到了一条鱼", "在河边画画", "看见鸭子游来游去"),
    }[place]  # fmt: skip
    first, second = w.some(seen, 2)
    w.say(
        w.one(
            f"我们先{first}，再{second}。",
            f"到了那里，我们{first}，然后{second}。",
            f"我{first}，还{second}。",
            f"上午，我们{first}。下午，我们{second}。",
        )
    )
    w.say(
        w.one(
            "中午，我们在外面吃了午饭。",
            f"我问{who}：“我们还能再来吗？”{who}说：“当然可以。”",
            "虽然有点累，但是很开心。",
            "我拍了很多照片。",
            "时间过得真快，天黑了。",
            "",
        )
    )
    w.say(
        w.one(
            "今天真开心！",
            "我很喜欢这一天。",
            "我希望下次还能去。",
            "回到家，我把今天的事写在日记里。",
            "这是我最难忘的一天。",
        )
    )


def portrait(w: World) -> None:
    """Who somebody is and what they like."""
    x = child(w)
    p = pronoun(x)
    best, age = friend(w, x), w.rng.randint(7, 12)
    like, other = w.some(
        (
            "画画",
            "唱歌",
            "跳舞",
            "看书",
            "踢足球",
            "打篮球",
            "游泳",
            "下棋",
            "跑步",
            "做饭",
            "养花",
            "听音乐",
            "看电影",
        ),
        2,
    )
    facts = [
        f"{p}今年{NUMBERS[age]}岁，上小学{NUMBERS[age - 6].replace('两', '二')}年级。", f"{p}住在{w.one('北京', '上海', '南京', '广州', '成都', '杭州', '一个小村子', '学校旁边', '河边的小房子里')}。",
        f"{p}喜欢{like}，也喜欢{other}。", f"{p}最好的朋友是{best.name}。", f"{p}的{w.one('爸爸', '妈妈')}是{w.one('老师', '医生', '工人', '司机', '厨师', '警察', '农民')}。",
        f"{p}每天{w.one('六点半', '七点', '六点')}起床，{w.one('晚上九点', '晚上十点')}睡觉。", f"{p}有一只{w.one('小猫', '小狗')}，{w.one('白白的', '黑黑的', '胖胖的', '很可爱')}。".replace("的。", "的，很可爱。"),
        f"{p}长大以后想当{w.one('老师', '医生', '科学家', '画家', '飞行员', '歌手')}。", f"{p}最喜欢吃{w.one(*FRUIT).name}。", f"每到周末，{p}都和{best.name}一起{like}。",
    ]  # fmt: skip
    w.say(
        w.one(
            f"{x.name}是我的{w.one('同学', '朋友', '邻居', '同桌')}。",
            f"我的朋友叫{x.name}。",
            f"{x.name}是{w.one('一个爱笑', '一个聪明', '一个认真', '一个勇敢', '一个热心')}的孩子。",
        )
    )
    w.say(*w.some(facts, w.rng.randint(3, 5)))
    w.say(w.one(f"大家都喜欢{x.name}。", f"我喜欢和{p}一起玩。", f"{p}每天都很快乐。", ""))


def at_school(w: World) -> None:
    """A question, a mistake or a test; effort and result."""
    x = child(w)
    y = friend(w, x)
    t = w.one(*TEACHERS)
    lesson = w.one("数学", "语文", "英语", "音乐", "美术", "体育", "科学")
    w.say(
        w.one(
            f"上{lesson}课的时候，{t.name}问了一个问题。",
            f"{w.one(*TIMES)}，{t.name}{w.one('给大家上', '教大家学')}{lesson}{w.one('课', '')}。".replace(
                "学" + lesson + "课", "学" + lesson
            ).replace("上" + lesson + "。", "上" + lesson + "课。"),
            f"明天要考{lesson}，{x.name}有点紧张。",
        )
    )
    body, moral = w.weighted([
        ((f"{x.name}举起手，回答得很好。{t.name}说：“{w.one('很好', '真棒', '答对了')}！”", "只要认真听，就能回答对。"), 2),
        ((f"{x.name}不会做，就去问{y.name}。{y.name}耐心地教{pronoun(x)}，{x.name}很快就明白了。", "不懂就要问。"), 2),
        ((f"{x.name}没有听懂，下课以后去问{t.name}。{t.name}又讲了一遍，{pronoun(x)}终于懂了。", "如果不懂，就要问老师。"), 2),
        ((f"{x.name}每天晚上都认真复习。结果，{pronoun(x)}考了{w.rng.randint(85, 100)}分。", "只要努力，就能做好。"), 2),
        ((f"因为{x.name}没有复习，所以只考了{w.rng.randint(40, 65)}分。{pronoun(x)}决定以后要好好学习。", "粗心会带来麻烦。"), 2),
        ((f"{x.name}不小心碰倒了{y.name}的水杯。{x.name}连忙说：“对不起！”{y.name}说：“没关系。”", "做错了事，要勇敢地说对不起。"), 1),
        ((f"{y.name}忘了带课本，{x.name}就和{pronoun(y)}一起看。{y.name}说：“谢谢你！”", "有了困难，要互相帮助。"), 1),
    ])  # fmt: skip
    w.say(body)
    w.say(w.one(moral, "", f"放学以后，{x.name}和{y.name}一起回家。", f"从那以后，{x.name}越来越喜欢{lesson}了。"))


def at_home(w: World) -> None:
    """Chores, illness, meals: one thing leads to the next."""
    x = child(w)
    elder = w.one(*ELDERS)
    p = pronoun(x)
    kind = w.one("ill", "cook", "chore", "late", "pet", "plant")
    if kind == "ill":
        w.say(
            opening(w)
            + f"{x.name}{w.one('生病了', '感冒了', '发烧了', '肚子疼')}，{w.one('不能去上学', '躺在床上', '一点力气也没有')}。"
        )
        w.say(
            f"{elder.name}带{p}去医院。医生说：“{w.one('没关系，吃点药就好了', '要多喝水，多休息', '这几天不要吃冷的东西')}。”"
        )
        w.say(
            w.one(
                f"{x.name}吃了药，睡了一觉，觉得好多了。",
                f"第二天，{friend(w, x).name}来看{p}，还带来了水果。",
                f"过了三天，{x.name}的病好了。",
            )
        )
    elif kind == "cook":
        dish = w.one("番茄炒鸡蛋", "面条", "饺子", "米饭", "土豆汤", "鱼", "蛋糕")
        w.say(opening(w) + f"{x.name}{w.one('和' + elder.name + '一起', '学着', '帮' + elder.name)}做{dish}。")
        w.say(
            w.one(
                "先把菜洗干净，再切好，然后放进锅里。",
                "先烧水，再放盐，最后放一点油。",
                f"{elder.name}说：“要小心，锅很热。”",
            )
        )
        w.say(
            w.one(
                "做好以后，大家都说很好吃。",
                "虽然盐放多了，但是大家还是吃完了。",
                f"{elder.name}尝了一口，说：“真好吃！”",
                f"{x.name}吃了两碗。",
            )
        )
    elif kind == "chore":
        tired = w.one("下班回来，很累", "正在忙", "腰疼")
        w.say(
            opening(w)
            + f"{elder.name}{tired}。"
            + w.one(f"{x.name}想帮忙。", f"{x.name}说：“我来帮您吧。”", f"{x.name}就去帮忙。")
        )
        w.say(
            f"{p}先{w.one('扫地', '洗碗', '擦桌子')}，再{w.one('倒垃圾', '浇花', '收拾房间')}，{w.one('忙了一个小时', '累得满头大汗', '家里变得干干净净')}。"
        )
        w.say(
            w.one(
                f"{elder.name}看见了，高兴地说：“{x.name}长大了！”",
                f"{elder.name}夸{p}是个好孩子。",
                f"{x.name}虽然很累，但是心里很高兴。",
            )
        )
    elif kind == "late":
        w.say(
            f"{w.one('今天', '昨天', '星期一')}早上，{x.name}起床晚了。{p}{w.one('没吃早饭就', '一穿好衣服就', '连脸都没洗，就')}跑出门。"
        )
        w.say(
            w.one(
                f"可是公共汽车已经开走了，{p}只好走路去学校。",
                f"因为路上堵车，所以{p}迟到了。",
                f"跑到学校门口，{p}才发现忘了带书包。",
                f"到了学校，{p}才想起今天是星期天。"
                if w.lines[-1].startswith("昨天")
                else f"因为跑得太快，{p}摔了一跤。",
            )
        )
        w.say(
            w.one(
                "老师说：“下次要早一点。”",
                f"{x.name}说：“对不起，我以后一定早起。”",
                f"从那以后，{x.name}每天都早睡早起。",
            )
        )
    elif kind == "pet":
        animal = w.one("小猫", "小狗", "小鸟", "小兔子")
        w.say(f"{x.name}家有一只{animal}，名字叫{w.one('花花', '豆豆', '球球', '毛毛', '点点')}。")
        w.say(
            w.one(
                f"{animal}喜欢{w.one('睡觉', '晒太阳', '在院子里跑', '玩皮球')}。",
                f"每天放学，{animal}都在门口等{x.name}。",
                f"有一天，{animal}不见了，{x.name}找了很久，最后在{w.one('树上', '床底下', '邻居家', '箱子里')}找到了它。",
            )
        )
        w.say(w.one(f"{x.name}每天都给它吃的。", f"{x.name}很爱它。", f"它是{x.name}最好的朋友。"))
    else:
        w.say(f"{w.one('春天', '去年春天', '有一天')}，{x.name}种下了一颗种子。{p}每天给它浇水。")
        w.say(
            w.one(
                "过了几天，种子发芽了。", "一个星期以后，长出了小小的叶子。", "可是，很多天过去了，什么也没有长出来。"
            )
        )
        w.say(
            w.one(
                f"{elder.name}说：“不要着急，慢慢等。”",
                f"{x.name}问{elder.name}：“为什么要浇水呢？”{elder.name}说：“因为植物也要喝水。”",
            )
        )
        w.say(w.one("夏天，它开出了一朵漂亮的花。", "秋天，树上结满了果子。", f"后来，它长得比{x.name}还高。"))


def moved(w: World) -> None:
    """Where a thing is, as people put it down and carry it off."""
    x = child(w)
    y = friend(w, x)
    o = w.one(*[t for t in THINGS if t.kind not in ("drink", "umbrella")])
    a1, a2, a3 = w.some(
        ("桌子上", "椅子上", "书包里", "抽屉里", "柜子里", "盒子里", "窗台上", "床上", "冰箱旁边", "门口"), 3
    )
    w.say(
        (opening(w) if w.chance(0.4) else "")
        + w.one(
            f"{x.name}把{o.name}放在{a1}，{w.one('就出去了', '去上学了', '去洗手了', '然后出门了')}。",
            f"{x.name}的{o.name}放在{a1}。",
        )
    )
    w.say(
        w.one(
            f"后来，{y.name}把{o.name}拿到了{a2}。",
            f"{y.name}进来，把{o.name}放到了{a2}。",
            f"过了一会儿，{y.name}来了，把{o.name}从{a1}拿走，放在{a2}。",
        )
    )
    last = a2
    if w.chance(0.4):
        elder = w.one(*ELDERS)
        put = "放进了" if a3.endswith("里") else "放在了"
        w.say(f"{w.one('最后', '晚上', '然后')}，{elder.name}{w.one('收拾房间，', '')}又把{o.name}{put}{a3}。")
        last = a3
    w.say(
        w.one(
            f"现在{o.name}在哪里？在{last}。",
            f"{x.name}回来的时候，{o.name}已经不在{a1}，在{last}了。",
            f"{x.name}问：“我的{o.name}在哪里？”{y.name}说：“在{last}。”",
            f"所以，{o.name}现在在{last}。",
            f"{x.name}在{a1}没有找到{o.name}，因为{o.name}在{last}。",
        )
    )


def facts(w: World) -> None:
    """Things every child knows, some as questions."""
    x = child(w)
    y = w.one(friend(w, x), *TEACHERS, *ELDERS)
    if w.chance(0.45):
        question, answer = w.one(*WHY)
        w.say((opening(w) if w.chance(0.3) else "") + f"{x.name}问{y.name}：“{question}”{y.name}说：“{answer}”")
        if w.chance(0.5):
            question, answer = w.one(*[q for q in WHY if q[0] != question])
            w.say(f"{x.name}又问：“{question}”{y.name}说：“{answer}”")
        w.say(
            w.one(
                f"{x.name}说：“原来如此！”",
                f"{x.name}点点头，说：“我明白了。”",
                f"{x.name}把这些话记了下来。",
                f"{y.name}说：“不懂就问，真是好习惯。”",
            )
        )
    else:
        chosen = w.some(FACTS, w.rng.randint(2, 4))
        if w.chance(0.5):
            w.say(
                f"{y.name}告诉{x.name}：“{''.join(chosen)}”",
                w.one(f"{x.name}说：“我记住了。”", f"{x.name}听得很认真。", ""),
            )
        else:
            w.say(*chosen)


SCENES = (
    (passing_on, 36), (exchange, 7), (lost_and_found, 7), (shopping, 5), (counting, 6), (rain, 6), (birthday, 4), (fable, 8),
    (conversation, 7), (diary, 6), (portrait, 4), (at_school, 5), (at_home, 6), (moved, 4), (facts, 3),
)  # fmt: skip

"""What a browser keeps of a Streamlit page: its elements by their place, the state of its widgets, the messages worth keeping; and
what it sends back. So the server sees what it would see of a browser."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.Slider_pb2 import Slider
from streamlit.proto.WidgetStates_pb2 import WidgetState

CONTROL = re.compile(r"[a-z0-9-]+(\.\d+)?\.\w+")  # the key of an instrument's control: "<instrument>.<field>"
ENDED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
Place = tuple[int, ...]


@dataclass
class Node:
    """An element, or a block (kind ""), at its place."""

    kind: str
    element: Any
    run: str
    fragment: str  # "" outside of all
    script: str


@dataclass
class Kept:
    """A message that the server may refer to by its hash, and in how many runs since it did not."""

    message: ForwardMsg
    age: int = 0


@dataclass
class Page:
    color_scheme: str = "light"
    query: str = ""
    hash: str = ""
    main_hash: str = ""
    run: str = ""  # the script run under way
    addresses: dict[str, str] = field(default_factory=dict)  # address of a page → its hash
    nodes: dict[Place, Node] = field(default_factory=dict)
    states: dict[str, WidgetState] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    longest_kept: int = 0

    def hear(self, raw: bytes) -> ForwardMsg:
        """Takes one message in; returns it, a reference replaced by what it refers to. Raises KeyError for a reference to what was
        not kept."""
        message = ForwardMsg.FromString(raw)
        if message.WhichOneof("type") == "ref_hash":
            kept = self.kept[message.ref_hash]
            kept.age = 0
            whole = ForwardMsg()
            whole.CopyFrom(kept.message)
            whole.metadata.CopyFrom(message.metadata)
            message = whole
        elif message.metadata.cacheable:
            self.kept[message.hash] = Kept(message)
        match message.WhichOneof("type"):
            case "new_session":
                self.run = message.metadata.run.script_run_id
                self.hash, self.main_hash = message.new_session.page_script_hash, message.new_session.main_script_hash
                self.longest_kept = message.new_session.config.max_cached_message_age
            case "navigation":
                self.addresses = {page.url_pathname: page.page_script_hash for page in message.navigation.app_pages}
                self.hash = message.navigation.page_script_hash
            case "page_info_changed":
                self.query = message.page_info_changed.query_string.removeprefix("?")
            case "delta":
                self._put(message)
            case "script_finished" if message.script_finished in ENDED:
                self._tidy(message.metadata.run)
        return message

    def _put(self, message: ForwardMsg) -> None:
        delta, place = message.delta, tuple(message.metadata.delta_path)
        if delta.WhichOneof("type") == "new_transient":
            return
        element = delta.new_element if delta.HasField("new_element") else None
        kind = element.WhichOneof("type") or "" if element else ""
        inner = getattr(element, kind) if kind else None
        self.nodes[place] = Node(kind, inner, self.run, delta.fragment_id, message.metadata.active_script_hash)
        id = getattr(inner, "id", "")
        if id and (id not in self.states or getattr(inner, "set_value", False)):
            if (state := shown(kind, inner)) is not None:
                self.states[id] = state

    def _tidy(self, run) -> None:
        """What the run that ended did not draw again is gone: of the whole page, or of its fragments."""
        fragments = set(run.fragment_ids)
        self.nodes = {
            place: node for place, node in self.nodes.items()
            if node.run == run.script_run_id or (fragments and node.fragment not in fragments)
        }  # fmt: skip
        there = {getattr(node.element, "id", "") for node in self.nodes.values()}
        self.states = {id: state for id, state in self.states.items() if id in there}
        for kept in self.kept.values():
            kept.age += 1
        self.kept = {hash: kept for hash, kept in self.kept.items() if kept.age <= self.longest_kept}

    # ---- what is sent

    def rerun(self, *, name: str = "", fragment: str = "", pressed: str = "") -> bytes:
        """name: the page that the address says, for a first run. pressed: the id of a button."""
        message = self._asking(name)
        message.rerun_script.fragment_id = fragment
        message.rerun_script.page_script_hash = self.hash
        message.rerun_script.widget_states.widgets.extend(self.states.values())
        if pressed:
            message.rerun_script.widget_states.widgets.add(id=pressed, trigger_value=True)
        return message.SerializeToString()

    def turn_to(self, address: str, query: str) -> bytes:
        """To another page, by a link that carries its own query. The states of what surrounds every page go along."""
        message = self._asking("")
        message.rerun_script.query_string = self.query = query
        message.rerun_script.page_script_hash = self.addresses[address]
        around = {getattr(node.element, "id", "") for node in self.nodes.values() if node.script == self.main_hash}
        message.rerun_script.widget_states.widgets.extend(state for id, state in self.states.items() if id in around)
        return message.SerializeToString()

    def _asking(self, name: str) -> BackMsg:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string, rerun.page_name = self.query, name
        rerun.cached_message_hashes.extend(self.kept)
        rerun.context_info.timezone, rerun.context_info.locale, rerun.context_info.color_scheme = "UTC", "zh-CN", self.color_scheme
        return message

    # ---- what a learner finds on it

    def find(self, *kinds: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind in kinds]

    def buttons(self, ending: str) -> dict[str, Node]:
        """Buttons whose key ends so, by the key of their instrument."""
        return {key_of(node).removesuffix(ending): node for node in self.find("button") if key_of(node).endswith(ending)}

    def movable(self) -> list[Node]:
        """The controls of our instruments that can take another value."""
        return [
            node for node in self.find("slider", "selectbox", "button_group", "checkbox")
            if node.fragment and not node.element.form_id and not node.element.disabled and CONTROL.fullmatch(key_of(node)) and values(node)
        ]  # fmt: skip

    def move(self, node: Node, draw: random.Random) -> None:
        """Sets a control to another of its values."""
        now = self.states[node.element.id]
        others = [state for value in values(node) if (state := _state(node.kind, node.element, value)) != now]
        self.states[node.element.id] = draw.choice(others)


def key_of(node: Node) -> str:
    """The key that the page gave a widget: ids are $$ID-<hash>-<key>."""
    return node.element.id.split("-", 2)[2]


MOST_VALUES = 200  # of a slider, evenly over its range


def values(node: Node) -> list[Any]:
    """What the control can be set to; empty when there is no choice."""
    element = node.element
    match node.kind:
        case "slider" if element.type == Slider.SELECT_SLIDER:
            found = list(element.options)
        case "slider":
            steps = round((element.max - element.min) / element.step)
            each = max(1, steps // MOST_VALUES)
            found = [element.min + element.step * n for n in range(0, steps + 1, each)]
        case "selectbox":
            found = list(element.options)
        case "button_group":
            found = [option.content for option in element.options]
        case "checkbox":
            found = [False, True]
    return found if len(found) > 1 else []


def shown(kind: str, element: Any) -> WidgetState | None:
    """The state in which the browser shows a widget that the server has drawn; None for what has none of its own."""
    said = element.set_value if hasattr(element, "set_value") else False
    match kind:
        case "slider" if element.type == Slider.SELECT_SLIDER:
            now = element.raw_value if said else [element.options[int(i)] for i in element.default]
            return WidgetState(id=element.id, string_array_value={"data": now})
        case "slider":
            return WidgetState(id=element.id, double_array_value={"data": element.value if said else element.default})
        case "button_group":
            now = element.raw_values if said else [element.options[i].content for i in element.default]
            return WidgetState(id=element.id, string_array_value={"data": now})
        case "selectbox" | "radio":
            if said:
                return WidgetState(id=element.id, string_value=element.raw_value)
            return WidgetState(id=element.id, string_value=element.options[element.default]) if element.HasField("default") else None
        case "checkbox":
            return WidgetState(id=element.id, bool_value=element.value if said else element.default)
        case "text_input":
            return WidgetState(id=element.id, string_value=element.value if said else element.default)
    return None


def _state(kind: str, element: Any, value: Any) -> WidgetState:
    match kind:
        case "slider" if element.type != Slider.SELECT_SLIDER:
            return WidgetState(id=element.id, double_array_value={"data": [value]})
        case "slider" | "button_group":
            return WidgetState(id=element.id, string_array_value={"data": [value]})
        case "checkbox":
            return WidgetState(id=element.id, bool_value=value)
    return WidgetState(id=element.id, string_value=value)

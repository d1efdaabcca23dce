"""What is replaced is put back, in whatever order layers over one method are taken away."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from traingen.observe.hooking import Depth, all_of, overlay, replace, subclasses


class Speaks:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, word: str) -> str:
        self.heard.append(word)
        return word.upper()


def layer(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A layer that adds its name to what is said."""

    def make(say: Callable[[str], str]) -> Callable[[str], str]:
        return lambda word: say(f"{word} {name}")

    return make


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_layers_are_taken_away_in_any_order_and_leave_the_method_of_the_class(order):
    speaks, other = Speaks(), Speaks()
    removes = [overlay(speaks, "say", layer(name)) for name in "abc"]
    assert speaks.say("hello") == "HELLO C B A"
    assert other.say("hello") == "HELLO"
    for gone, index in enumerate(order):
        assert "say" in vars(speaks), gone
        removes[index]()
    assert "say" not in vars(speaks)
    assert speaks.say("hello") == "HELLO"


def test_a_layer_under_another_goes_on_until_that_is_gone():
    speaks = Speaks()
    below, above = (overlay(speaks, "say", layer(name)) for name in "ab")
    below()
    assert speaks.say("hello") == "HELLO B A"
    above()
    assert speaks.say("hello") == "HELLO"


def test_the_upper_layer_leaves_the_lower_one():
    speaks = Speaks()
    below, above = (overlay(speaks, "say", layer(name)) for name in "ab")
    above()
    assert speaks.say("hello") == "HELLO A"
    below()
    below()  # once more does nothing
    assert "say" not in vars(speaks)


def test_what_was_put_on_the_object_before_comes_back():
    speaks = Speaks()
    own: Any = lambda word: f"own {word}"  # noqa: E731
    speaks.say = own
    overlay(speaks, "say", layer("a"))()
    assert speaks.say is own


def test_replacing_wraps_only_what_the_owner_defines_itself():
    class Child(Speaks):
        pass

    original = vars(Speaks)["say"]
    remove = replace(Speaks, "say", lambda say: lambda self, word: say(self, word) + "!")
    assert Child().say("hello") == "HELLO!"
    remove()
    assert vars(Speaks)["say"] is original
    with pytest.raises(KeyError):
        replace(Child, "say", lambda say: say)


def test_all_are_undone_the_latest_first():
    undone: list[int] = []
    all_of([lambda n=n: undone.append(n) for n in range(3)])()
    assert undone == [2, 1, 0]


def test_depth_counts_entries_also_where_one_raises():
    depth = Depth("a test's")

    def fail_inside() -> None:
        with depth, depth:
            raise ValueError(f"{int(depth)} deep")

    with pytest.raises(ValueError, match="2 deep"):
        fail_inside()
    assert int(depth) == 0


def test_subclasses_are_the_class_and_all_below_it():
    class Child(Speaks):
        pass

    class Grandchild(Child):
        pass

    assert {Speaks, Child, Grandchild} <= set(subclasses(Speaks))
    assert list(subclasses(Grandchild)) == [Grandchild]

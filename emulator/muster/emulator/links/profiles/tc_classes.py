"""Classes of htb and hfsc, as `tc class add` makes them and `tc class show` prints them.

A link passes one class, and has the rate of the class while no other class sends:

- htb: at most `ceil`, but above its `rate` only what its parent class may send. So `ceil` has no
  effect in a class without a parent class (`htb_activate_prios` of `net/sched/sch_htb.c`).
- hfsc: the least `ul` of the class and its parents. `sc`, `rt` and `ls` promise rates, and limit
  none; a real-time promise (`sc`, `rt`) holds above `ul` too (`tc-hfsc(7)`). Of a curve of two
  pieces, the last counts.
"""

import math
import re
from typing import NamedTuple

from muster.emulator.links.profiles.tc_numbers import NUMBER, bps_of, not_read

_KIND = re.compile(r"\b(htb|hfsc)\b")
_ID = re.compile(r"\bclassid\s+(\S+)|\bclass\s+(?:htb|hfsc)\s+(\S+)")
_PARENT = re.compile(r"\bparent\s+(\S+)")
_DELETES = re.compile(r"\bclass\s+del(ete)?\b")
_RATES = re.compile(rf"\b(rate|ceil)\s+{NUMBER}([a-z]+)")
_CURVES = re.compile(
    rf"\b(sc|rt|ls|ul)\s+(?:m1\s+\S+\s+d\s+\S+\s+m2\s+|umax\s+\S+\s+dmax\s+\S+\s+rate\s+|"
    rf"m2\s+|rate\s+){NUMBER}([a-z]+)"
)


class _Class(NamedTuple):
    """A class.

    Attributes:
        parent: the id of what it belongs to: a class or a queueing discipline.
        sure_bps: what it may send in any case.
        most_bps: what it may send at most.
        borrows: whether it gets more than `sure_bps` from a parent class only.
    """

    parent: str
    sure_bps: float
    most_bps: float
    borrows: bool


class TcClasses:
    """The classes of an interface."""

    def __init__(self) -> None:
        self._found: dict[str, _Class] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def take(self, text: str) -> None:
        """Take a command about a class, or a line that `tc class show` prints.

        Raises:
            ValueError: it cannot be read.
        """
        kind, named = _KIND.search(text), _ID.search(text)
        if named is None or (name := named[1] or named[2]).endswith(":"):  # a discipline
            return
        if re.fullmatch(r"[0-9a-f]*:[0-9a-f]+", name) is None:
            raise not_read("classid")
        if _DELETES.search(text):
            self._found.pop(name, None)
        elif kind is not None:
            forms = {"htb": (_RATES, ("rate", "ceil")), "hfsc": (_CURVES, ("sc", "rt", "ls", "ul"))}
            form, keys = forms[kind[1]]
            bps = {key: bps_of(number, unit) for key, number, unit in form.findall(text)}
            for key in keys:
                if re.search(rf"\b{key}\b", text) and key not in bps:
                    raise not_read(key)
            self._found[name] = self._class(name, kind[1], text, bps)

    def _class(self, name: str, kind: str, text: str, bps: dict[str, float]) -> _Class:
        parent, before = _PARENT.search(text), self._found.get(name)
        above = parent[1] if parent else before.parent if before else ""
        if kind == "hfsc":
            sure = max(bps.get("sc", 0.0), bps.get("rt", 0.0))
            return _Class(above, sure, bps.get("ul", math.inf), borrows=False)
        if "rate" not in bps:
            raise not_read("rate")
        return _Class(above, bps["rate"], bps.get("ceil", bps["rate"]), borrows=True)

    @property
    def leaves(self) -> list[str]:
        """The ids of the classes that traffic passes: those without classes below them."""
        above = {each.parent for each in self._found.values()}
        return [name for name in self._found if name not in above]

    def bps(self, name: str) -> float | None:
        """What a class may send while no other sends, in bits per second; None: no limit."""
        chain: list[_Class] = []
        while name in self._found and self._found[name] not in chain:
            chain.append(self._found[name])
            name = chain[-1].parent
        most = 0.0 if chain and chain[-1].borrows else math.inf
        for each in reversed(chain):
            if each.borrows:
                most = min(each.most_bps, max(each.sure_bps, most))
            else:
                most = max(each.sure_bps, min(each.most_bps, most))
        return None if most == math.inf else most

    def note(self, name: str) -> str:
        """What a reader of a class's commands may not expect of its rate."""
        bps = self.bps(name)
        if bps is None:
            return "a class of hfsc without ul has no limit: give up or down"
        found = self._found[name]
        if found.borrows and bps < found.most_bps:
            return (
                f"class {name} does not reach its ceil, because no class above it may send so much"
            )
        return "rates are those of a class while no other sends"

"""The fields of devices' messages that move something for other devices."""

from generation.markdown import table
from muster.common.claims import INFLUENCES, Moves


def influences() -> list[str]:
    """A row for each influence, with the fields that have it."""
    rows = [
        (
            ", ".join(f"`{name}`" for name, found in INFLUENCES.items() if found is influence),
            influence.when,
            influence.limit,
            "; ".join(move for move in Moves if move in influence.moves),
        )
        for influence in {id(each): each for each in INFLUENCES.values()}.values()
    ]
    return table(("field", "with", "within", "moves"), rows)

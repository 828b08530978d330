"""The league: aggregators beside each other, in scenarios in which fleets behave differently.

`scenarios` has the scenarios, which are ordinary ones. `plan` lists the runs, `playing` plays them
in virtual time, `standings` computes the table, `page` writes it, and `check` plays a part of a
table again. Each scenario is a comparison with a folder of its own.
"""

from muster.laboratory.league.playing import league, resume_league
from muster.laboratory.league.standings import League

__all__ = ["League", "league", "resume_league"]

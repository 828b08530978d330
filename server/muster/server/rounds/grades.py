"""The grades of playing a run from a life record, by name: what is taken from the record."""

from collections.abc import Mapping

from muster.server.rounds.answers import RecordedAnswers
from muster.server.rounds.arrivals import RecordedArrivals

GRADES: Mapping[str, type[RecordedArrivals | RecordedAnswers]] = {
    "arrivals": RecordedArrivals,
    "life": RecordedAnswers,
}

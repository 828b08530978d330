"""The metrics of the server."""

from generation.markdown import table
from muster.server.metrics.measures import MEASURES, Kind


def metrics() -> list[str]:
    """A row for each metric that muster defines."""
    rows = [
        (
            f"`{measure.name}`",
            measure.kind.value,
            ", ".join(f"`{label}`" for label in measure.labels),
            measure.meaning,
        )
        for measure in MEASURES
    ]
    return table(("metric", "type", "labels", "meaning"), rows)


def buckets() -> list[str]:
    """A row for each histogram, with the bounds of its buckets."""
    rows = [
        (f"`{measure.name}`", ", ".join(f"{bound:,.15g}" for bound in measure.buckets))
        for measure in MEASURES
        if measure.kind is Kind.HISTOGRAM
    ]
    return table(("histogram", "bounds of its buckets"), rows)

"""The schedule of absences that harms a rule most (docs/worst-case.md)."""

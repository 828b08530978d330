"""The study of correlated participation: its fleets, measures, figure and claims."""

"""The study of agnostic FedAvg: its fleets, measures, figure and claims."""

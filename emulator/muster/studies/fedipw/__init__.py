"""The study of FedIPW: its fleets, measures, figure and claims."""

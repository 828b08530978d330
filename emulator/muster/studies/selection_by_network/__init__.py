"""The study of selection bias caused by networks: its fleets, measures, figure and claims."""

"""The study of the usual rules under unavailability: its fleet, measures, figure and claims."""

"""The faults that a scenario may schedule: the table `[[faults]]`, the catalogue, and what faults
may ask of a running fleet."""

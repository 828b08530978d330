"""Code for all parts of muster: errors, clock, seeds, sections, plug-ins, journal, tensors."""

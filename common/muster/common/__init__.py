"""What every part of muster shares: errors, clock, seeds, sections, plug-ins, journal, tensors."""

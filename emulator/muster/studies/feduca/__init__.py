"""The study `feduca`: rational devices, and weights that are to keep them in the federation."""

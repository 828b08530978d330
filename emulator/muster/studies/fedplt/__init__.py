"""The study `fedplt`: training parts of a model."""

"""Formats of recorded links, one file each: `matches` tells one by its first lines, and `read`
makes the rates."""

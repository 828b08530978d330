"""The checks of an audit. Each file has those of one subject, in `CHECKS`."""

"""The study `staleness`: what asynchrony saves in time, and what it costs in bias."""

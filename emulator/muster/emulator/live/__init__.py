"""The live page: what a run's fleet is doing, in a browser.

A separate process follows the run folder and only reads it. `fleet_state` and `round_digest` are
pure; `run_setup` and `ledger_feed` read files. `run_reader` puts them together, and `follower` does
it in a thread; `app` and `serving` speak HTTP, and ask the run for something as the commands do.
`page_files` makes a page that needs no program, for the report.
"""

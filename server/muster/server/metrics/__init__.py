"""The metrics of a running server, for Prometheus: what is measured (`measures`), how events change
it (`run_metrics`), and the port at which it is read (`port`, with the requests of `scrape`);
`opening` connects them to a server.

Only `run_metrics` needs the library `prometheus_client`, which is an extra. It is imported only if
the scenario asks for metrics.
"""

"""What monitors the server of a run from outside: Prometheus and Grafana. muster starts neither.

`prometheus` writes what Prometheus needs to read the metrics of a run, and `grafana` has the
dashboard, `dashboard.json`. May import the scenario and the credentials.
"""

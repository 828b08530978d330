"""What monitors the server of a run from outside: Prometheus and Grafana. muster starts neither.

`prometheus` makes the configuration with which Prometheus reads the metrics of a run. The other
files are for Grafana: the dashboard, and where it finds the dashboard and the metrics. May import
the credentials.
"""

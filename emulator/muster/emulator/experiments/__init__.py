"""Several runs, and runs that are only computed: plans and comparisons."""

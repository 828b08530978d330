"""Link profiles of other tools, one file for each: constant rates, round trips and losses."""

"""Fleets on the nodes of a Ray cluster.

`fleet` is the backend, in the command that runs the fleet. On every node a `node_actor` of Ray
starts a `node_program`, which starts programs with the processes backend. Only `cluster` and
`node_actor` import Ray.
"""

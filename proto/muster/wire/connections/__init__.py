"""Opens every channel, port and connection of muster: in plain text, or with mutual TLS.

Without TLS, a port is opened on the loopback address only. With TLS, both ends show certificates
of the run's authority. A certificate has the name of its program as a URI (`identity_uri`), and a
called program checks that the name is the caller's. gRPC's clients can check only a host name, so
the server's certificate also has one that no other certificate of the run has (`server_host`).

The addresses to which programs connect say nothing of who answers there, because devices reach the
server through gateways. Names are therefore checked, and addresses never.

`encryption` has what holds for all of them. `calls` opens channels and ports of gRPC. `streams`
opens connections that carry lines. `ports` opens ports for them, and limits what strangers cost.
"""

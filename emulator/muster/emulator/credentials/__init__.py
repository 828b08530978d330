"""The credentials of a run's programs: `issuing` draws and writes them for every start, and
`authority` is the certificate authority that signs the certificates of TLS."""

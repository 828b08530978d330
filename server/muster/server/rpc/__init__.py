"""The gRPC services: they check who calls, decode a message, hand it to the domain, and encode the
reply. They may import everything else in the server.
"""

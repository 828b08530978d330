"""The gRPC services: they authenticate the caller, decode the request, call the rounds, and encode
the reply. They import rounds, account.traffic and the fleet; nothing here is imported by the other
folders of the server.
"""

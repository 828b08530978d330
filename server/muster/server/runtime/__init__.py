"""What a run needs of its process and its machine: the worker thread, processes beside the server,
signals to the main loop, and room on the disk.

Of the other folders of the server it imports only fleet.
"""

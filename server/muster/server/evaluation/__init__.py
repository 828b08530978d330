"""The evaluation of models: a process of its own (`process`), its driver inside the server, and
the schedule of what is evaluated when. Only `process` imports torch.
"""

"""The evaluation of models: a separate process (`process`), its driver inside the server
(`evaluator`), and the schedule of the versions to evaluate.

Of the server it imports only `account.rows`, settings and `runtime.beside`. Only functions of
`process` and `breakdown` import torch, because these run in the separate process.
"""

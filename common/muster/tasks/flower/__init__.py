"""The task `flower`: the `ClientApp` of a Flower app trains, unchanged, on muster's devices.

`settings` is the `[task]` table and imports no flwr. Everything else imports it, and is imported
when the task is opened:

- `project` reads the app's folder, and imports its two apps;
- `rehearsal` plays the beginning of the app's first round, and so learns the app's messages and its
  initial model;
- `arrays` turns the arrays of a message into the model's vector and back;
- `records` turns records into bytes and back;
- `hosting` calls the `ClientApp`;
- `opened` is the open task.
"""

"""The task `flower`: the `ClientApp` of a Flower app trains, unchanged, on muster's devices.

`opened` is the task, with its `settings`. Both do without flwr, and so does `project`, which reads
the app's folder and imports its two apps.

These are imported when the app is first used:

- `rehearsal` plays the beginning of the app's first round, and so learns the app's messages and its
  initial model;
- `hosting` calls the `ClientApp`;
- `messages` knows what is in messages and replies;
- `arrays` turns the arrays of a message into the model's vector and back;
- `measured` finds the metrics that the `ServerApp` notes;
- `records` turns records into bytes and back;
- `loaded` is the app that trains and is evaluated, from all of these.
"""

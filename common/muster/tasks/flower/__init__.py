"""The task `flower`: the `ClientApp` of a Flower app trains, unchanged, on muster's devices.

`settings` is the `[task]` table. The parts, of which only those before `rehearsal` and the last do
without flwr:

- `project` reads the app's folder without flwr, and imports its two apps;
- `rehearsal` plays the beginning of the app's first round, and so learns the app's messages and its
  initial model;
- `hosting` calls the `ClientApp`;
- `messages` knows what is in messages and replies;
- `arrays` turns the arrays of a message into the model's vector and back;
- `records` turns records into bytes and back;
- `loaded` is the app that trains and is evaluated, from all of these;
- `opened` is the open task, which loads the app when it is first used.
"""

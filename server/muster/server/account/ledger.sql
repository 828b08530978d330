-- The ledger of a run. Times are UNIX seconds, durations seconds, sizes bytes.
-- `PRAGMA user_version` is the schema's version (muster.server.account.ledger.SCHEMA_VERSION).

CREATE TABLE run (
    id TEXT NOT NULL,              -- identity of the run, the same over restarts
    incarnation INTEGER NOT NULL,  -- how often a server has opened this ledger
    status TEXT,                   -- completed, diverged, failed, stopped; NULL while it runs
    detail TEXT,                   -- why, for people
    started_at REAL NOT NULL,      -- of the first incarnation
    ended_at REAL,
    began_at REAL,                 -- scenario time 0 on the wall and scaled clocks: the moment at which
                                   -- the fleet had assembled; NULL in lockstep
    population INTEGER NOT NULL,   -- devices, whether the server knows them or not
    moments TEXT NOT NULL,         -- JSON of the population's means of the covariates Z
    bytes_up INTEGER NOT NULL DEFAULT 0,   -- of bodies that travelled after the last commit: they
    bytes_down INTEGER NOT NULL DEFAULT 0  -- are part of no row of rounds
);

CREATE TABLE inputs (              -- what the run began with; it may only go on with the same
    kind TEXT NOT NULL,            -- scenario, or module: a file of the user's own code
    name TEXT NOT NULL,            -- scenario.toml, or the path below the folder of the code
    sha256 TEXT NOT NULL,          -- of the file; of the scenario, of all settings that may not change
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE clients (
    client TEXT PRIMARY KEY,
    "group" TEXT NOT NULL,
    position INTEGER NOT NULL UNIQUE,   -- in the population, from 0
    examples INTEGER NOT NULL,     -- training examples the device holds
    enrolled INTEGER NOT NULL,     -- 1: it may train; with limited information 0 is not known
    z TEXT,                        -- JSON of its covariates Z, if the server knows them
    capacity REAL,                 -- share of the model it can train; NULL before its first session
    enrolled_at REAL,              -- of its first session; NULL: it never connected
    sessions INTEGER NOT NULL DEFAULT 0,
    fingerprint TEXT               -- JSON of the last session's numeric fingerprint
);

CREATE TABLE rounds (
    round INTEGER PRIMARY KEY,     -- from 1
    base_version INTEGER NOT NULL,
    version INTEGER NOT NULL,      -- after the round; equals base_version when the round is empty
    outcome TEXT NOT NULL,         -- aggregated, empty
    called INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    folded INTEGER NOT NULL,
    normaliser REAL,               -- the divisor of the weighted sum
    weight_sum REAL,               -- exact sum of the folded weights
    weight_max REAL,
    effective_size REAL,           -- (sum w)^2 / sum w^2
    scenario_s REAL,               -- scenario seconds at which it opened; on the wall and scaled
                                   -- clocks, NULL before scenario time began
    next_s REAL,                   -- in lockstep, scenario seconds at which the next round opens
    loss REAL,                     -- of the model the run would offer after this round
    accuracy REAL,                 -- likewise; NULL if the task has none
    bytes_up INTEGER NOT NULL,     -- of all bodies that came from devices, and that went to them,
    bytes_down INTEGER NOT NULL,   -- since the round before was committed, for whatever round
    opened_at REAL NOT NULL,
    closed_at REAL NOT NULL,       -- when the next version had been computed, before the commit
    seconds REAL NOT NULL,         -- wall seconds from opening to closed_at, without the commit
    epsilon REAL,                  -- of differential privacy, spent up to this round; NULL without
                                   -- server.privacy, or with noise 0
    contributions INTEGER          -- rows of contributions that were entered up to and with the commit
                                   -- of this round; the rowid of the newest one
);

CREATE TABLE answers (
    round INTEGER NOT NULL,
    client TEXT NOT NULL,
    decision TEXT NOT NULL,        -- accept, decline, abort (it accepted and gave up); on the wall
                                   -- and scaled clocks also absent (it was not connected, so it was
                                   -- not called) and silent (it was called but sent no answer)
    reason TEXT,                   -- why it declined or gave up
    state TEXT,                    -- JSON of the device's state; absent, silent: last known state
    x TEXT,                        -- JSON of the covariates X at the moment of the decision
    x_age_s REAL,                  -- age of `state` and `x` in scenario seconds. It is 0 unless they
                                   -- are the last known ones: of absent and silent devices, and of
                                   -- devices whose update overtook their answer
    modelled_s REAL,               -- of work and transfers, in the scenario's model of the device
    bytes_down INTEGER NOT NULL DEFAULT 0,  -- of the model inside the message that called it; 0: the
                                   -- model is fetched, or went to another device of the same pack
    at REAL NOT NULL,
    away_steps INTEGER NOT NULL DEFAULT 0,  -- in lockstep, of a device that declined because it is
                                   -- offline: further steps of its life for which it will be
    entered INTEGER,               -- the round with whose commit the row was entered, if that is not
                                   -- `round`: the device had answered late
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE INDEX entered_later ON answers (entered) WHERE entered IS NOT NULL;

CREATE TABLE valuations (         -- of rational devices (groups.participation), whatever they decided
    round INTEGER NOT NULL,
    client TEXT NOT NULL,
    received_accuracy REAL NOT NULL,  -- of the received model, on the device's validation examples
    own_accuracy REAL,             -- of the device's own model; NULL in its first round
    a REAL, b REAL, c REAL,        -- of the utility -a·r² + b·r + c that the device fitted after this
                                   -- round's training, and the utility below which it leaves; NULL
    threshold REAL,                -- unless the aggregator announces weights
    gains INTEGER,                 -- 1: the received model is better for it than its own (eq. 1 of
                                   -- FedUCA), whatever rule it follows; NULL without a model of its own
    forced INTEGER NOT NULL,       -- 1: it had to accept, without a test
    fitted_utility REAL,           -- at its weight in the received model, by the curve of the round
                                   -- before; NULL without one. Measured: received_accuracy
    r_squared REAL,                -- of the curve on a grid of utility.dense_points weights
    received_loss REAL,            -- of the received model on the validation examples; NULL: not finite
    own_loss REAL,                 -- of the device's own model
    PRIMARY KEY (round, client)
) WITHOUT ROWID;

CREATE TABLE contributions (
    round INTEGER NOT NULL,        -- in which the update counted; of others, the round of their call
    client TEXT NOT NULL,
    call_round INTEGER NOT NULL,   -- in which the device was called for it
    attempt INTEGER NOT NULL,
    base_version INTEGER NOT NULL,
    staleness INTEGER NOT NULL,    -- versions committed after base_version when the update was added
    weight REAL,                   -- NULL unless folded
    examples INTEGER NOT NULL,
    mask_ratio REAL NOT NULL,      -- share of the coordinates that were trained
    bytes_up INTEGER NOT NULL,     -- of the update's body that arrived: less than its length if it
                                   -- was cut off, more if a part was sent again
    bytes_down INTEGER NOT NULL,   -- of the model's body that was sent to the device for this update
    bytes_saved INTEGER NOT NULL,  -- by compression: the update as float32, less bytes_up
    train_s REAL,
    transfer_s REAL,               -- fetching the model and sending the update
    loss REAL,                     -- mean training loss over the local steps
    outcome TEXT NOT NULL,         -- folded, late, duplicate, refused, dropped
    reason TEXT,
    at REAL NOT NULL,
    steps INTEGER NOT NULL DEFAULT 0,  -- local steps behind the update
    initial_loss REAL              -- loss of the received model on the device's examples, before
                                   -- training; NULL: not measured
);
CREATE UNIQUE INDEX counted_once ON contributions (call_round, client) WHERE outcome = 'folded';

CREATE TABLE transfers (          -- calls in which a model or an update travelled in chunks
    round INTEGER NOT NULL,
    client TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    direction TEXT NOT NULL,       -- down: the model, up: the update
    bytes INTEGER NOT NULL,        -- of the body that travelled in this call
    began_at REAL NOT NULL,        -- when it was requested; down: by the device's clock
    wait_s REAL NOT NULL,          -- before its first byte: for a channel slot, and for its turn at
                                   -- the server
    seconds REAL NOT NULL,         -- from then to its last byte
    rate_bps REAL,                 -- achieved: bits of the body a second; NULL if it took no time
    ending TEXT NOT NULL           -- complete; cut off: its round closed before its end; broken
);

CREATE TABLE estimates (          -- from which the aggregator computed a round's weights
    round INTEGER NOT NULL,
    name TEXT NOT NULL,            -- for example "participation" (coefficients) or "shares"
    value TEXT NOT NULL,           -- JSON: a number, a word, or an object of them by name
    PRIMARY KEY (round, name)
) WITHOUT ROWID;

CREATE TABLE memory (             -- the last update of every client, if the aggregator needs it
    client TEXT PRIMARY KEY,
    round INTEGER NOT NULL,        -- in which the update counted
    slot INTEGER NOT NULL,         -- 0 or 1: which of the client's slots of memory.bin has it
    checksum TEXT NOT NULL         -- XXH3-128 of the update as float32
) WITHOUT ROWID;

CREATE TABLE shared_work (        -- in lockstep, on links that devices share, in the modes in which
                                  -- updates may outlive their round: the newest work of each device
    client TEXT PRIMARY KEY,
    round INTEGER NOT NULL,        -- in which it was called
    train_s REAL NOT NULL,         -- modelled seconds of training
    stage INTEGER NOT NULL,        -- muster.common.fluid.Stage
    at_s REAL NOT NULL,            -- scenario seconds to which left_bits refers, or at which the stage
                                   -- ends
    left_bits REAL NOT NULL        -- of the transfer that is under way
) WITHOUT ROWID;

CREATE TABLE evaluations (
    version INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,        -- the round that made the version; 0: the initial model
    loss REAL,                     -- NULL: not a number, the model has diverged
    accuracy REAL,
    metrics TEXT NOT NULL,         -- JSON of what else the task measures, for example the
                                   -- distance to the optimum
    seconds REAL NOT NULL,
    at REAL NOT NULL
);

CREATE TABLE group_evaluations (  -- with server.evaluate_groups
    version INTEGER NOT NULL,
    round INTEGER NOT NULL,        -- the round that made the version
    "group" TEXT NOT NULL,
    examples INTEGER NOT NULL,     -- examples of the group's devices on which it was measured
    loss REAL,                     -- mean over them; NULL: not a number
    accuracy REAL,
    PRIMARY KEY (version, "group")
) WITHOUT ROWID;

CREATE TABLE device_evaluations ( -- with server.evaluate_devices
    version INTEGER NOT NULL,
    client TEXT NOT NULL,
    examples INTEGER NOT NULL,     -- examples of the device on which it was measured
    loss REAL,                     -- mean over them; NULL: not a number
    accuracy REAL,
    PRIMARY KEY (version, client)
) WITHOUT ROWID;

CREATE TABLE faults (             -- reserved for injected faults: nothing writes it yet
    at REAL NOT NULL,
    round INTEGER,
    fault TEXT NOT NULL,           -- its name
    target TEXT NOT NULL,
    status TEXT NOT NULL,          -- applied, healed, failed
    detail TEXT
);

CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,
    sha256 TEXT NOT NULL,          -- of the safetensors file
    bytes INTEGER NOT NULL,
    body BLOB,                     -- the safetensors file if small; else models/<version>.safetensors
    kept INTEGER NOT NULL DEFAULT 1  -- 0: the bytes were removed, they are no longer needed
);

CREATE TABLE aggregator_state (
    version INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    body BLOB                      -- safetensors if small; else models/<version>.state.safetensors
);

"""From a TOML file to a validated `Scenario`, in which every default is filled in."""

"""The `traingen` command: parse arguments, run one command, turn its outcome into an exit code."""

"""What all packages of the program share: errors with a remedy, owned tasks, safe text, YAML with
line numbers, addresses."""

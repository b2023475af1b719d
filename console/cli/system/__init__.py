"""Commands that integrate the program into the system: completion in shells, a service."""

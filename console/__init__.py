"""The operator's side: terminal console, command line and process supervisor."""

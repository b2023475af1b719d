"""What stands behind the screens: child processes, the proxy's event feed, attaching to a proxy."""

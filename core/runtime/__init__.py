"""Home folder, ports, TLS, secret files, log format, version, GC tuning."""

"""The faults that tests inject into a proxy under load, and the audit afterwards."""

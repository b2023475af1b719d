"""Support of the tests of `console.export`."""

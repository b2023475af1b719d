"""Tests of `console.web`."""

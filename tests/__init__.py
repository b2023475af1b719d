"""Tests of every part; `support` holds what several of them use."""

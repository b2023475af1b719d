"""The parts of the app around the screens: palette, keymap, key queue, output sanitizer."""

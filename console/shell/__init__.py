"""What surrounds the screens: palette, keymap, key queue, output sanitizer."""

"""What sits around screens: palette, keymap, type-ahead, output guard."""

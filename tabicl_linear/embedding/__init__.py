"""From table cells and labels to tokens."""

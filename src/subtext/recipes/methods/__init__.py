"""What changes only training: Setup -> Setup."""

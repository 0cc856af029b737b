"""Public functions on search indexes: build, change, maintain and calibrate them."""

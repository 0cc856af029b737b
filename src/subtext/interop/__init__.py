"""A model in the formats of other libraries: folders for the Hub, ONNX graphs, MTEB's encoder protocol."""

"""Runs for other libraries: the Hub's folders and ONNX, each compared with the model before it is called done."""

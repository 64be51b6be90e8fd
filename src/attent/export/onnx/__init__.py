"""ONNX: every model as two graphs, run by onnxruntime under our own search."""

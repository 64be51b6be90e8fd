"""ONNX: every translator as two graphs, run by onnxruntime under our own search."""

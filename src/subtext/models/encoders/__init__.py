"""Networks that read pictures, words or features: tensors -> Encoded."""

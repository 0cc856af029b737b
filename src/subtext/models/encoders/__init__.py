"""Networks that read images, words or features: tensors -> Encoded."""

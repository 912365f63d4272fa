"""An independent check of a certificate: numpy in float64, with no code of the model, the tasks or the biases."""

"""The paper's models, full size and narrow by the same code; no pre-trained weights, no torchvision."""

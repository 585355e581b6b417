"""What PyTorch computes on a device, recorded item by item; __main__.py says how."""

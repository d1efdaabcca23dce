"""TabNet on scikit-learn's bundled digits: pytorch-tabnet's own fit beside ours on Lightning."""

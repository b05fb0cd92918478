"""What a file of weights holds, as read: its tensors, and the graph that it carries in porter's ops."""

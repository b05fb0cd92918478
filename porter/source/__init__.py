"""What is ported: from what a user names to an opened source.

`place` finds what is there. `open` has it read (`reading`, `in_memory`) and opened, by `by_recipe`,
`own_graph`, `from_port` or `trained_port`: each gives the source as `opened` has it. `reopening` opens the
source of a port again.
"""

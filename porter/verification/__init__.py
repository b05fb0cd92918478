"""Is a port the function of its source?

`proving` compares a port with the references of its source (`references/`), and `reverify` does so again. A
`check` is one comparison, at the `sizes` and on the `inputs` that tell: node by node inside the whole network
(`parity`), and each node by itself (`cut_points`). A `verdict` says what all of them show; port.json has its
`results`. Beside values, `stored_numbers` compares bits, and `witnesses` and `saved_graph` hold porter's
reading to others. `training_pads_proof` and `user_proof` prove in other ways; `loss` measures.
"""

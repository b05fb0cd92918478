"""Is a port the function of its source?"""

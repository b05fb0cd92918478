def model_source(plan: object) -> str:
    return ""
    return ""

"""Update rules as pure functions of tensors. No parameters, no modules, no device choice."""

//! What disturbs a node: neighbours that want its CPU, memory or file descriptors.

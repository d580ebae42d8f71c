//! Remote memory: the three verbs over its transports, and the reader.

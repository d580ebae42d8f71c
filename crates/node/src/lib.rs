//! The node side: samples the kernel and publishes the load record.

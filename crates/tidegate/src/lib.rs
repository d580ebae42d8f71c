//! The binary: command line, configuration, driver, admin API, metrics, demo.

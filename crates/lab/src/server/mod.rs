//! The test server: a known amount of work per request.

//! Front-ends under test: Tidegate and its peers, each configured as its own users would.

//! What nodes are to bear beside each other, by their configuration and their agents.

/// What a node has of each resource, relative to others: 1 is a node like the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Speed of its CPUs together.
    pub cpu: f32,
    /// Memory.
    pub memory: f32,
    /// File descriptors.
    pub files: f32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            cpu: 1.0,
            memory: 1.0,
            files: 1.0,
        }
    }
}

/// What a node is to bear beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Its share relative to others.
    pub weight: f32,
    /// What it has of each resource.
    pub capacity: Capacity,
}

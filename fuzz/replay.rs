//! Replays a corpus in a test: each file as it is, and with a few of its bytes changed, the same ones each time.

use std::path::Path;

use tidegate_core::prng::Prng;

/// Times that each file is changed.
const CHANGED: usize = 100;

/// Checks the corpus of that name. What is written over a byte is one of `odd`.
pub(crate) fn replay(corpus: &str, odd: &[u8], check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut prng = Prng::new(7);
    let mut files = 0;
    for entry in std::fs::read_dir(folder.join(corpus)).expect("a corpus") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(path).expect("a file of the corpus");
        check(&bytes);
        files += 1;
        for _ in 0..CHANGED {
            let mut bytes = bytes.clone();
            for _ in 0..=prng.below(3) {
                let at = prng.below(bytes.len());
                bytes[at] = odd[prng.below(odd.len())];
            }
            check(&bytes);
        }
    }
    assert!(files > 5, "{corpus}: {files} files");
}

//! The generated C header is what its source says, and a C compiler agrees with its offsets.

use std::path::Path;
use std::process::Command;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tidegate_record.h");

#[test]
fn the_header_is_what_the_layout_says() {
    let text = std::fs::read_to_string(HEADER).unwrap();
    assert!(
        text == tidegate_core::record::c_header(),
        "run `cargo xtask generate`"
    );
}

#[test]
fn a_c_compiler_agrees_with_every_offset() {
    let source = format!(
        "#include <linux/types.h>\n#include \"{HEADER}\"\nint main(void) {{ return 0; }}\n"
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header.c");
    std::fs::write(&file, source).unwrap();
    let compiler = Command::new("cc")
        .args(["-fsyntax-only", "-Wall", "-Werror"])
        .arg(&file)
        .output();
    match compiler {
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{message}");
        }
        Err(error) => println!("SKIPPED: no C compiler: {error}"),
    }
}

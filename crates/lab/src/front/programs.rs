//! Where the programs under test are, and which version each is.
//!
//! A program is looked for on `PATH`, in `/usr/sbin`, and for Envoy also in `ENVOY_BIN` and in
//! `target/lab-tools/`, where `scripts/setup.sh lab` puts it. Tidegate is the binary beside the
//! lab's own, or `TIDEGATE_BIN`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian keeps Apache's modules.
const APACHE_MODULES: &[&str] = &["/usr/lib/apache2/modules", "/usr/lib/httpd/modules"];

/// The file of a program, or why there is none.
pub(super) fn find(name: &str) -> Result<PathBuf, String> {
    let variable = format!("{}_BIN", name.to_uppercase());
    if let Some(named) = std::env::var_os(&variable).map(PathBuf::from) {
        let missing = || format!("{variable} names {}, which is not there", named.display());
        return named.is_file().then(|| named.clone()).ok_or_else(missing);
    }
    let mut places: Vec<PathBuf> = Vec::new();
    if name == "tidegate" {
        places.extend(beside_own());
    }
    if name == "envoy" {
        places.extend(lab_tools());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&path));
    places.extend([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    let files = places.iter().map(|place| place.join(name));
    let found = files.into_iter().find(|file| file.is_file());
    found.ok_or_else(|| format!("{name} is not installed: {}", remedy(name)))
}

fn remedy(name: &str) -> &'static str {
    match name {
        "tidegate" => "build it with `make lab`, or name it in TIDEGATE_BIN",
        "envoy" => "`scripts/setup.sh lab` fetches it, or name it in ENVOY_BIN",
        _ => "`scripts/setup.sh lab` installs it",
    }
}

/// The folder of the lab's own binary, and the one above (tests run in `deps/`).
fn beside_own() -> Vec<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    own.ancestors()
        .skip(1)
        .take(2)
        .map(Path::to_path_buf)
        .collect()
}

/// `target/lab-tools`, seen from the lab's own binary in `target/PROFILE/`.
fn lab_tools() -> Vec<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let above = own.ancestors().skip(2).take(2);
    above.map(|folder| folder.join("lab-tools")).collect()
}

/// Apache's folder of modules.
pub(super) fn apache_modules() -> Result<PathBuf, String> {
    let folders = APACHE_MODULES.iter().map(PathBuf::from);
    let mut found = folders.filter(|folder| folder.join("mod_proxy_balancer.so").is_file());
    found.next().ok_or_else(|| {
        "Apache's mod_proxy_balancer is not installed: `scripts/setup.sh lab` installs it".into()
    })
}

/// What a program says its version is: the first line that has a digit.
pub(super) fn version(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .output()
        .map_err(|error| format!("{} {argument}: {error}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text
        .lines()
        .filter(|line| line.contains(|it: char| it.is_ascii_digit()));
    let line = lines.next().map(|line| short(line, program));
    line.ok_or_else(|| format!("{} {argument} tells no version", program.display()))
}

/// The number in a line like `nginx version: nginx/1.22.1` or `HAProxy version 2.6.12-1 2025/…`.
fn short(line: &str, program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut words = line
        .split([' ', '/', '\t'])
        .filter(|word| word.contains('.') && word.starts_with(|it: char| it.is_ascii_digit()));
    let number = words.next().unwrap_or(line);
    format!("{name} {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_to_name_and_number() {
        let cases = [
            (
                "haproxy",
                "HAProxy version 2.6.12-1+deb12u3 2025/10/03 - https://haproxy.org/",
                "haproxy 2.6.12-1+deb12u3",
            ),
            ("nginx", "nginx version: nginx/1.22.1", "nginx 1.22.1"),
            (
                "apache2",
                "Server version: Apache/2.4.66 (Debian)",
                "apache2 2.4.66",
            ),
            (
                "envoy",
                "envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL",
                "envoy 1.40.0",
            ),
            ("tidegate", "tidegate 0.1.0", "tidegate 0.1.0"),
        ];
        for (program, line, expected) in cases {
            let program = Path::new("/usr/sbin").join(program);
            assert_eq!(short(line, &program), expected);
        }
    }

    #[test]
    fn a_missing_program_is_told_with_its_remedy() {
        let why = find("no-such-proxy").unwrap_err();
        assert!(
            why.contains("no-such-proxy is not installed") && why.contains("setup.sh lab"),
            "{why}"
        );
    }
}

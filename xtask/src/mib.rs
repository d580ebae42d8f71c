//! Whether `contrib/snmp/TIDEGATE-MIB.txt` is sound: `smilint` has nothing to say about it, not even a warning.

use std::path::Path;
use std::process::Command;

use crate::npm;
use crate::test::Outcome;

const FOLDER: &str = "contrib/snmp";
const MIB: &str = "contrib/snmp/TIDEGATE-MIB.txt";
/// The MIBs that all others build on: Debian has no package of them.
const BASE: &str = "contrib/snmp/node_modules/net-snmp/lib/mibs";
/// Those of Net-SNMP.
const NET_SNMP: &str = "/usr/share/snmp/mibs";

/// See the module. The base MIBs, which some tests need too, are there from then on.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    if let Some(why) = npm::missing(&root.join(FOLDER)) {
        return Ok(Outcome::Skipped(why));
    }
    if !Path::new(NET_SNMP).join("NET-SNMP-MIB.txt").exists() {
        let why = format!("no NET-SNMP-MIB in {NET_SNMP} (Debian: libsnmp-base)");
        return Ok(Outcome::Skipped(why));
    }
    let path = format!("{}:{NET_SNMP}", root.join(BASE).display());
    let output = Command::new("smilint")
        .arg("-s")
        .arg(root.join(MIB))
        .env("SMIPATH", path)
        .output();
    let Ok(output) = output else {
        let why = "smilint is not installed (Debian: smitools)";
        return Ok(Outcome::Skipped(why.into()));
    };
    // It ends with 0 whatever it finds.
    let said = [output.stdout, output.stderr].concat();
    print!("{}", String::from_utf8_lossy(&said));
    Ok((output.status.success() && said.is_empty()).into())
}

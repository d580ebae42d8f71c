//! Discovery of culprits: the table, and what it means.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::classes::{PATTERNS_MAX, Pattern};
use tidegate_core::throttle::AutoConfig;
use tidegate_culprits::live::Actions;
use tidegate_culprits::names::{ClassNames, class_pattern};

use super::file::ConfigFile;
use super::problem::{Problem, Problems};
use super::setting::{At, table};
use crate::token::Token;

/// Most other front-ends.
const PEERS_MAX: usize = 64;

table! {
    /// Which classes of requests load which resource. See docs/culprits.md.
    pub(crate) struct CulpritsFile {
        /// Whether anybody looks. It takes some MB and less than a hundredth of a CPU.
        enabled: bool = true;
        /// Classes that have these names, rather than by folding their URLs: `/search/*`,
        /// `POST /cart/*` or `cart=/cart/*`. The first that fits counts.
        classes: Vec<At<String>> = Vec::new();
        /// Admin addresses of the other front-ends of these nodes: what requests each has goes to all, so that
        /// each sees all of a class. They prove to each other that they have the same admin token, which itself is not
        /// sent.
        peers: Vec<At<SocketAddr>> = Vec::new();
        /// File with a secret for `peers` alone, the same on all of them, so that none needs to know the admin token of
        /// another: at least 16 printable letters, mode 0600. Relative to this file.
        peer_token_file: Option<PathBuf> = None;
        /// Where admission refuses requests or lets them wait in front of a resource in heavy use, let those of its
        /// strong and confirmed culprits go last, so that they wait first.
        first_to_wait: bool = true;
        /// Slow culprits down by itself, and release them by itself: those that are strong or confirmed,
        /// while their resource is in heavy use and others wait longer than `slo`, or much longer than with room,
        /// or admission refuses them or lets them wait.
        automatic: bool = false;
        /// Let `automatic` try the classes that seem to fill a resource that has been full all the time, one
        /// after the other; with room again it is known for sure, and one that makes no difference goes free.
        trials: bool = true;
        /// Begin delay experiments on classes that cannot be separated otherwise: a random half of their requests is
        /// delayed by 300 ms, for a minute at most, while the others are within `slo`.
        delay_experiments: bool = false;
        /// What 95 of 100 requests of all other classes shall take at most, for `automatic` and for delay experiments.
        slo: Duration = Duration::from_millis(500), in Duration::from_millis(1)..=Duration::from_secs(60);
        /// Most classes that `automatic` slows at a time.
        most: u32 = 3, in 1..=64;
        /// Least requests in flight that `automatic` leaves a class.
        least: u32 = 1, in 1..=10_000;
    }
}

/// What discovery is given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Culprits {
    /// Classes with names of their own.
    pub(crate) patterns: Vec<Pattern>,
    /// Admin addresses of the other front-ends.
    pub(crate) peers: Vec<SocketAddr>,
    /// What they know each other by, if not by the admin token.
    pub(crate) peer_token: Option<Token>,
    /// What it does by itself: this changes while the front-end runs.
    pub(crate) actions: Actions,
}

/// The classes that the file names, but for those that are wrong.
pub(super) fn class_names(file: &ConfigFile) -> ClassNames {
    ClassNames::new(&patterns(&file.culprits))
}

fn patterns(file: &CulpritsFile) -> Vec<Pattern> {
    let texts = file.classes.value.iter();
    texts.filter_map(|it| class_pattern(it).ok()).collect()
}

/// Each of the others counts once, and this front-end is none of them.
fn check_peers(peers: &[At<SocketAddr>], admin: &At<SocketAddr>, problems: &mut Problems) {
    for (place, peer) in peers.iter().enumerate() {
        let address = peer.value;
        if leads_to(address, admin.value) {
            let message = format!("peer {address} is this front-end's own admin address");
            let help = "`peers` are the other front-ends: leave this one out";
            problems.push(Problem::new(peer.place(), message, "not another front-end").help(help));
        } else if let Some(first) = peers[..place].iter().find(|it| it.value == address) {
            let message = format!("two peers with the address {address}");
            let problem = Problem::new(peer.place(), message, "again here");
            problems.push(problem.context(first.place(), "first here"));
        }
    }
}

/// Whether a connection to an address from this machine surely comes to a listener: its own address, or one of this
/// machine alone where it listens on all of them. Other addresses of the machine are not known here.
fn leads_to(to: SocketAddr, listener: SocketAddr) -> bool {
    let (ip, own) = (to.ip().to_canonical(), listener.ip().to_canonical());
    let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    let on_all = own.is_unspecified() && here(ip) && (own.is_ipv6() || ip.is_ipv4());
    // An unspecified address is reached as the loopback address of its family.
    let first = own.is_loopback() && ip.is_unspecified() && own.is_ipv4() == ip.is_ipv4();
    to.port() != 0 && to.port() == listener.port() && (ip == own || on_all || first)
}

/// What the file wants; none if discovery is off. All that is wrong is among the problems.
pub(super) fn culprits(
    file: &ConfigFile,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Culprits> {
    let admin = &file.admin.address;
    let file = &file.culprits;
    for class in &file.classes.value {
        if let Err(error) = class_pattern(class) {
            problems.push(Problem::new(class.place(), error, "here"));
        }
    }
    if let Some(over) = file.classes.value.get(PATTERNS_MAX) {
        let message = format!("at most {PATTERNS_MAX} classes can be named");
        problems.push(Problem::new(over.place(), message, "one too many"));
    }
    if let Some(over) = file.peers.value.get(PEERS_MAX) {
        let message = format!("at most {PEERS_MAX} other front-ends");
        problems.push(Problem::new(over.place(), message, "one too many"));
    }
    check_peers(&file.peers.value, admin, problems);
    let peer_token = file.peer_token_file.value.as_ref();
    let peer_token = peer_token.and_then(|path| match Token::load(&folder.join(path)) {
        Ok(token) => Some(token),
        Err(reason) => {
            let message = format!("cannot use this token file: {reason}");
            problems.push(Problem::new(file.peer_token_file.place(), message, "here"));
            None
        }
    });
    let acts = file.automatic.value || file.first_to_wait.value;
    let automatic = acts.then(|| AutoConfig {
        holds: file.automatic.value,
        most: file.most.value as usize,
        least: file.least.value,
        trials: file.trials.value,
        ..AutoConfig::default()
    });
    file.enabled.value.then_some(Culprits {
        patterns: patterns(file),
        peers: file.peers.value.iter().map(|it| it.value).collect(),
        peer_token,
        actions: Actions {
            delay_experiments: file.delay_experiments.value,
            slo: file.slo.value,
            automatic,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_own_listener_where_that_can_be_seen() {
        let leads =
            |to: &str, listener: &str| leads_to(to.parse().unwrap(), listener.parse().unwrap());
        for (to, listener) in [
            ("127.0.0.1:9900", "127.0.0.1:9900"),
            ("10.0.0.2:9900", "10.0.0.2:9900"),
            ("[::ffff:10.0.0.2]:9900", "10.0.0.2:9900"),
            ("127.0.0.1:9900", "0.0.0.0:9900"),
            ("127.0.0.1:9900", "[::]:9900"),
            ("[::1]:9900", "[::]:9900"),
            ("0.0.0.0:9900", "127.0.0.1:9900"),
        ] {
            assert!(leads(to, listener), "{to} {listener}");
        }
        for (to, listener) in [
            ("127.0.0.1:9901", "127.0.0.1:9900"),
            ("127.0.0.2:9900", "127.0.0.1:9900"),
            ("10.0.0.3:9900", "0.0.0.0:9900"),
            ("10.0.0.3:9900", "[::]:9900"),
            ("[::1]:9900", "0.0.0.0:9900"),
            ("[::1]:9900", "127.0.0.1:9900"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert!(!leads(to, listener), "{to} {listener}");
        }
    }
}

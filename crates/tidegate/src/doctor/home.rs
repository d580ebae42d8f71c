//! Whether the etcd that keeps the words of moves answers: each endpoint by itself. It is read, and nothing is written. (The home in
//! a region is asked with the nodes.)

use super::Diagnosis;
use crate::config::{EtcdHomeConfig, FrontEnd, MovesEngine};
use crate::moves::read_etcd;

/// None where no etcd is asked.
pub(super) fn examine(front_end: &FrontEnd) -> Vec<Diagnosis> {
    let Some(MovesEngine::Etcd(config)) = front_end.reconfigure.as_ref().map(|it| &it.engine)
    else {
        return Vec::new();
    };
    let each = config.endpoints.iter().map(|endpoint| {
        let alone = EtcdHomeConfig {
            endpoints: vec![endpoint.clone()],
            ..config.clone()
        };
        of_endpoint(&endpoint.to_string(), read_etcd(&alone))
    });
    each.collect()
}

fn of_endpoint(endpoint: &str, read: Result<(), String>) -> Diagnosis {
    const CHECK: &str = "etcd";
    match read {
        Ok(()) => Diagnosis::ok(CHECK, format!("{endpoint} answers for the words of moves")),
        Err(why) => Diagnosis::warn(
            CHECK,
            format!("{endpoint} does not answer for the words of moves: {why}"),
            "start etcd there, or correct `home` in [reconfigure]; no node moves while no endpoint answers",
        ),
    }
}

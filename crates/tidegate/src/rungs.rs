//! Says once how each node's load is read, and again when that changes; likewise that a node has a wrong key.

use tidegate_core::load::Rung;
use tidegate_core::topology::NodeId;

/// Looks without a record before the first word about it: agents and front-ends start in any
/// order, and the first reads take a moment.
const SILENT_LOOKS: u32 = 20;
/// The events: how a load is read, that one is lost, and that it is known again.
const RUNG: &str = "rung";
const LOAD_UNKNOWN: &str = "load_unknown";
const LOAD_KNOWN: &str = "load_known";

/// What was said last of each node.
#[derive(Debug, Default)]
pub(crate) struct RungWatch {
    nodes: Vec<(u32, Said)>,
}

#[derive(Clone, Copy, Debug)]
enum Said {
    Nothing { looks: u32 },
    Rung(Rung),
    Lost,
}

impl RungWatch {
    /// A look at one node: its rung if its load is known. `trouble` tells why it is not, or
    /// nothing for a node that is not read. What is to be said comes with the name of its event.
    pub(crate) fn look(
        &mut self,
        node: NodeId,
        generation: u32,
        rung: Option<Rung>,
        trouble: impl Fn() -> Option<String>,
    ) -> Option<(&'static str, String)> {
        let said = of(&mut self.nodes, node, generation);
        match (*said, rung) {
            (Said::Rung(last), Some(rung)) if last == rung => None,
            (before, Some(rung)) => {
                *said = Said::Rung(rung);
                let event = match before {
                    Said::Lost => LOAD_KNOWN,
                    Said::Nothing { .. } | Said::Rung(_) => RUNG,
                };
                Some((event, format!("load is read by {}", rung.label())))
            }
            (Said::Lost, None) => None,
            (Said::Nothing { looks }, None) if looks < SILENT_LOOKS => {
                *said = Said::Nothing { looks: looks + 1 };
                None
            }
            (Said::Nothing { .. } | Said::Rung(_), None) => {
                let first = matches!(*said, Said::Nothing { .. });
                *said = Said::Lost;
                Some(match trouble() {
                    None => (
                        RUNG,
                        "load is not read: own requests and latencies decide".into(),
                    ),
                    Some(why) if first => (LOAD_UNKNOWN, format!("load is not known yet: {why}")),
                    Some(why) => (LOAD_UNKNOWN, format!("load is not known any more: {why}")),
                })
            }
        }
    }
}

impl Default for Said {
    fn default() -> Self {
        Self::Nothing { looks: 0 }
    }
}

/// Says once that a node has a key of others, and again if that is so after its load was known.
#[derive(Debug, Default)]
pub(crate) struct KeyWatch {
    said: Vec<(u32, bool)>,
}

impl KeyWatch {
    /// A look at one node: whether its load is known, and what is wrong with its key. An answer that
    /// another made is worth no word while the node's own come as well.
    pub(crate) fn look(
        &mut self,
        node: NodeId,
        generation: u32,
        known: bool,
        wrong_key: impl Fn() -> Option<String>,
    ) -> Option<String> {
        let said = of(&mut self.said, node, generation);
        if known || *said {
            *said = *said && !known;
            return None;
        }
        let text = wrong_key();
        *said = text.is_some();
        text
    }
}

/// What was said of the node that has this place now.
fn of<T: Clone + Default>(all: &mut Vec<(u32, T)>, node: NodeId, generation: u32) -> &mut T {
    let place = node.index();
    if all.len() <= place {
        all.resize(place + 1, (generation, T::default()));
    }
    let (last, said) = &mut all[place];
    if *last != generation {
        *last = generation;
        *said = T::default();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn why() -> Option<String> {
        Some("no answer".into())
    }

    #[test]
    fn a_rung_is_told_once_and_when_it_changes() {
        let mut watch = RungWatch::default();
        let first = watch.look(NODE, 0, Some(Rung::Agent), why);
        let text = "load is read by agent";
        assert_eq!(first, Some((RUNG, text.into())));
        assert_eq!(watch.look(NODE, 0, Some(Rung::Agent), why), None);
        let lost = watch.look(NODE, 0, None, why);
        let text = "load is not known any more: no answer";
        assert_eq!(lost, Some((LOAD_UNKNOWN, text.into())));
        assert_eq!(watch.look(NODE, 0, None, why), None);
        let back = watch.look(NODE, 0, Some(Rung::AgentRealtime), why);
        let text = "load is read by agent_realtime";
        assert_eq!(back, Some((LOAD_KNOWN, text.into())));
    }

    #[test]
    fn the_first_reads_are_given_time() {
        let mut watch = RungWatch::default();
        for _ in 0..SILENT_LOOKS {
            assert_eq!(watch.look(NODE, 0, None, why), None);
        }
        let text = watch.look(NODE, 0, None, why).unwrap();
        assert_eq!(
            text,
            (LOAD_UNKNOWN, "load is not known yet: no answer".into())
        );
    }

    #[test]
    fn a_wrong_key_is_told_once_and_not_while_the_load_is_known() {
        let mut watch = KeyWatch::default();
        let wrong = || Some("wrong key".into());
        assert_eq!(watch.look(NODE, 0, true, wrong), None);
        assert_eq!(watch.look(NODE, 0, false, || None), None);
        assert_eq!(
            watch.look(NODE, 0, false, wrong).as_deref(),
            Some("wrong key")
        );
        assert_eq!(watch.look(NODE, 0, false, wrong), None);
        assert_eq!(watch.look(NODE, 0, true, wrong), None);
        assert_eq!(
            watch.look(NODE, 0, false, wrong).as_deref(),
            Some("wrong key")
        );
    }

    #[test]
    fn the_next_node_of_a_place_is_spoken_of_anew() {
        let mut watch = RungWatch::default();
        let agent = Some(Rung::Agent);
        assert!(watch.look(NODE, 0, agent, why).is_some());
        assert!(watch.look(NODE, 1, agent, why).is_some());
        assert_eq!(watch.look(NODE, 1, agent, why), None);
    }

    #[test]
    fn a_node_that_nobody_reads_is_said_to_be_so() {
        let mut watch = RungWatch::default();
        let texts: Vec<_> = (0..50)
            .filter_map(|_| watch.look(NODE, 0, None, || None))
            .collect();
        assert_eq!(
            texts,
            [(
                RUNG,
                "load is not read: own requests and latencies decide".into()
            )]
        );
    }
}

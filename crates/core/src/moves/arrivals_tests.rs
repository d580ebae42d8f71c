//! Words of nodes as they come, go and come back.

use std::time::Duration;

use super::super::numbering::{MovableNode, SiteRules};
use super::super::words::Count24;
use super::*;

const N: NodeNumber = NodeNumber(0);
const X: SiteNumber = SiteNumber(0);
const Y: SiteNumber = SiteNumber(1);

/// Node `n` of site `x`.
fn constitution() -> Constitution {
    let site = |name: &str| SiteRules {
        name: name.into(),
        floor: 0,
        ceiling: 9,
        priority: 0,
    };
    let node = MovableNode {
        name: "n".into(),
        home: "x".into(),
    };
    Constitution::new(vec![site("x"), site("y")], vec![node], false, 1).unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1000 + millis)
}

fn of(generation: u32, site: SiteNumber) -> Assignment {
    Assignment::first(Count24::new(generation), site, site != X)
}

/// A word that was read two milliseconds ago.
fn look(watch: &mut NodeWatch, word: u64, millis: u64) -> NodeLook {
    let asked_at = at(millis) - Duration::from_millis(2);
    watch.look(N, Some((word, asked_at)), &constitution(), at(millis))
}

fn mended(look: NodeLook) -> Option<(u64, Assignment)> {
    assert_eq!(look.reading, NodeReading::Unread);
    let WordAtomic::Swap { expected, new, .. } = look.mend? else {
        panic!("{look:?}");
    };
    Some((expected, Assignment::unpack(new).unwrap().unwrap()))
}

#[test]
fn a_blank_node_begins_at_its_site_or_where_it_was_known() {
    let mut watch = NodeWatch::default();
    assert_eq!(mended(look(&mut watch, 0, 0)), Some((0, of(1, X))));
    let read = look(&mut watch, of(6, Y).pack(), 10).reading;
    let asked_at = at(8);
    let assignment = of(6, Y);
    assert_eq!(
        read,
        NodeReading::Read {
            assignment,
            asked_at
        }
    );
    assert_eq!(mended(look(&mut watch, 0, 20)), Some((0, of(7, Y))));
}

#[test]
fn a_smaller_generation_is_an_old_datagram_until_it_has_stood() {
    let mut watch = NodeWatch::default();
    look(&mut watch, of(6, Y).pack(), 0);
    let old = of(1, X);
    for millis in [10, 100, 250] {
        assert_eq!(mended(look(&mut watch, old.pack(), millis)), None);
    }
    // In between it was there: what is smaller now is so anew.
    look(&mut watch, of(6, Y).pack(), 255);
    assert_eq!(mended(look(&mut watch, old.pack(), 260)), None);
    let raised = Some((old.pack(), of(7, X)));
    assert_eq!(mended(look(&mut watch, old.pack(), 509)), None);
    assert_eq!(mended(look(&mut watch, old.pack(), 510)), raised);
}

#[test]
fn a_node_that_is_not_read_is_silent() {
    let mut watch = NodeWatch::default();
    let mut not_read = |millis| {
        let look = watch.look(N, None, &constitution(), at(millis));
        assert_eq!((look.mend, look.garbled), (None, None));
        look.reading
    };
    assert_eq!(not_read(0), NodeReading::Unread);
    assert_eq!(not_read(249), NodeReading::Unread);
    assert_eq!(not_read(250), NodeReading::Silent);
    let seen = Some((of(1, X).pack(), at(300)));
    let look =
        |watch: &mut NodeWatch, millis| watch.look(N, seen, &constitution(), at(millis)).reading;
    assert!(matches!(look(&mut watch, 549), NodeReading::Read { .. }));
    assert_eq!(look(&mut watch, 550), NodeReading::Silent);
}

#[test]
fn a_word_of_other_numbers_begins_anew_one_generation_later() {
    let lent_to_none = Assignment {
        lent: false,
        ..of(4, Y)
    };
    for word in [of(4, SiteNumber(2)), lent_to_none] {
        let mut watch = NodeWatch::default();
        let mend = mended(look(&mut watch, word.pack(), 0));
        assert_eq!(mend, Some((word.pack(), of(5, X))));
    }
}

#[test]
fn a_word_that_no_front_end_writes_is_told_and_left() {
    let mut watch = NodeWatch::default();
    let look = look(&mut watch, 1, 0);
    assert_eq!(look.garbled.map(|it| it.field), Some("generation"));
    assert_eq!(mended(look), None);
}
